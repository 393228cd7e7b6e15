//! DockerMachines of Cluster API up to 1.13. Their provider waits for a Node before it sets the provider ID. Until the
//! provider ID is set, the provider recreates a container that it finds stopped. The new container is empty, because
//! the bootstrap does not run again.

use super::{Plan, Step, View};

/// The next DockerMachine whose healthy member shows that the bootstrap is done. If the provider ID were set any
/// sooner, the provider would skip the bootstrap.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    if !view.roster.is_listed() {
        return None;
    }
    view.observation.docker_machines.iter().find_map(|(machine, docker)| {
        let healthy = view.roster.by_machine(machine).is_some_and(|seat| seat.member.is_some() && seat.is_healthy());
        let done = docker.bootstrapped && docker.provider_id.is_none() && healthy;
        let provider_id = docker.own_provider_id().filter(|_| done)?;
        Some(Plan::Do(Step::SetProviderId { machine: machine.clone(), provider_id }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, address, name};
    use controller_support::external::DockerMachineView;

    /// Two healthy voters, the second on a DockerMachine whose Machine has no addresses.
    fn story() -> Story {
        let mut story = Story::with_voters(2, 2);
        let addresses = vec![("Hostname".to_owned(), name(1)), ("InternalIP".to_owned(), address(1))];
        let resource_version = "7".to_owned();
        let docker = DockerMachineView { resource_version, bootstrapped: true, provider_id: None, addresses };
        story.observation.docker_machines.insert(name(1), docker);
        story
    }

    fn changed(change: impl FnOnce(&mut Story)) -> Plan {
        let mut story = story();
        change(&mut story);
        story.plan()
    }

    fn docker(story: &mut Story) -> &mut DockerMachineView {
        story.observation.docker_machines.get_mut(&name(1)).unwrap()
    }

    #[test]
    fn a_bootstrapped_docker_machine_gets_its_provider_id_once() {
        let step = Step::SetProviderId { machine: name(1), provider_id: "docker:////demo-etcd-1".to_owned() };
        assert_eq!(story().plan(), Plan::Do(step));
        let again = changed(|story| docker(story).provider_id = Some("docker:////demo-etcd-1".to_owned()));
        assert_eq!(again, Plan::Steady);
    }

    #[test]
    fn not_before_its_member_has_been_seen_healthy_nor_before_its_provider_is_done() {
        let sets = |plan: &Plan| matches!(plan, Plan::Do(Step::SetProviderId { .. }));
        assert!(!sets(&changed(|story| docker(story).bootstrapped = false)));
        assert!(!sets(&changed(|story| docker(story).addresses.retain(|(type_, _)| type_ != "Hostname"))));
        assert!(!sets(&changed(|story| story.failing(1, "Connection refused"))));
        let other = changed(|story| {
            // Healthy, but another Machine's member.
            let probe = story.observation.probes[&name(0)].clone();
            story.observation.probes.insert(name(1), probe);
        });
        assert!(!sets(&other), "{other:?}");
        assert!(!sets(&changed(|story| story.observation.membership = crate::observation::Membership::NotAsked)));
    }

    #[test]
    fn the_others_wait_until_it_is_done() {
        // Until then a container that stops is lost with its data, so no step that counts on it comes first.
        let more = changed(|story| story.etcd().spec.replicas = 3);
        assert!(matches!(more, Plan::Do(Step::SetProviderId { .. })), "{more:?}");
    }
}
