//! What the prober knows about the members, and the targets that it is to probe.
//!
//! This is not only a read: it also sets the prober's targets from now on. That writes to no object and to no member,
//! and to set the same targets again changes nothing.

use crate::context::Context;
use crate::observation::{Observation, TargetKey};
use crate::pki::CertAndKey;
use crate::prober::{Probes, Target};
use crate::roster::{Seat, remembered, roster, strangers};
use api::etcd_cluster::{Health, MemberRole};
use api::names;
use controller_support::external::MachineView;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;

/// Sets the prober's targets, and takes over what it knows.
pub(super) async fn read(context: &Context, observation: &mut Observation, ca: Option<CertAndKey>, live: bool) {
    let uid = observation.etcd.uid().unwrap_or_default();
    // The latest list says which members no Machine carries.
    observation.take(context.prober.snapshot(&uid));
    context.prober.set(ObjectRef::from_obj(observation.etcd.as_ref()), &uid, probes(observation, ca));
    let mut snapshot = context.prober.snapshot(&uid);
    // Right after the manager has started, the prober knows nothing, and a status that says so would be a false alarm.
    let blank = snapshot.probes.is_empty() && observation.etcd.status.iter().any(|status| !status.members.is_empty());
    if live || blank {
        snapshot = context.prober.refresh(&uid).await;
    }
    observation.take(snapshot);
}

/// The targets to probe, and what the prober has to know about them.
fn probes(observation: &Observation, ca: Option<CertAndKey>) -> Probes {
    let checks = &observation.etcd.spec.health_check;
    let admitted = observation.machines.values().filter(|machine| observation.is_admitted(machine));
    let roster = roster(observation);
    // Members on Machines of an earlier EtcdCluster of this name are left alone.
    let strangers = roster.seats.iter().filter(|_| observation.not_owned.is_empty()).filter_map(stranger_target);
    Probes {
        ca,
        cluster_id: observation.recorded_cluster_id().and_then(|id| u64::from_str_radix(id, 16).ok()),
        targets: admitted.map(|machine| target(observation, machine)).chain(strangers).collect(),
        interval: observation.interval(),
        unhealthy_after: checks.unhealthy_after(),
        grace: checks.startup_grace(),
    }
}

/// The target of a stranger.
fn stranger_target(seat: &Seat<'_>) -> Option<Target> {
    let (id, member) = seat.member.as_ref().filter(|_| seat.is_stranger())?;
    let urls = strangers::client_urls(member);
    Some(Target { key: TargetKey::Stranger(*id), urls, member_id: Some(*id), eager: false })
}

fn target(observation: &Observation, machine: &MachineView) -> Target {
    let recorded = observation.last_on(machine);
    let present = observation.address(machine).map(names::client_url);
    let last = recorded.map(|member| member.client_url.clone()).filter(|url| !url.is_empty());
    let mut urls: Vec<String> = present.into_iter().chain(last).collect();
    urls.dedup();
    // A member that has not started has published no client URL, and its Machine may have lost its address meanwhile.
    if urls.is_empty() {
        urls = recorded.and_then(remembered).map(|(_, member)| strangers::client_urls(&member)).unwrap_or_default();
    }
    let settled = recorded.is_some_and(|member| member.role == MemberRole::Voter && member.health == Health::Healthy);
    Target {
        key: TargetKey::Machine(machine.name.clone()),
        urls,
        member_id: recorded.and_then(|member| u64::from_str_radix(&member.id, 16).ok()),
        eager: !settled && observation.is_in_grace(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, id, name};
    use crate::observation::Snapshot;

    #[test]
    fn whoever_may_be_a_member_is_probed_and_newcomers_often() {
        let mut story = Story::with_voters(3, 1);
        story.machine(1);
        story.held_back(2);
        let wanted = probes(&story.observation, None);
        let targets: Vec<_> = wanted.targets.iter().map(|t| (t.key.clone(), t.member_id, t.eager)).collect();
        let [first, second] = [0, 1].map(|index| TargetKey::of(&name(index)));
        assert_eq!(targets, [(first, Some(id(0)), false), (second, None, true)]);
        assert_eq!(wanted.cluster_id, Some(0xc));
        assert_eq!(wanted.targets[0].urls, ["https://10.0.0.1:2379"]);
        story.delete(1);
        assert!(probes(&story.observation, None).targets[1].eager, "it leaves only once it has started");
        story.pass(601);
        assert!(!probes(&story.observation, None).targets[1].eager, "its grace is over");
    }

    /// Its machine has died before its etcd has started, and the infrastructure has removed the addresses.
    #[test]
    fn a_member_that_has_not_started_is_asked_at_the_host_of_its_peer_url() {
        let mut story = Story::with_voters(3, 2);
        story.machine(2);
        story.member(2, true);
        story.unstarted(2);
        story.settle();
        story.observation.machines.get_mut(&name(2)).unwrap().addresses.clear();
        assert_eq!(probes(&story.observation, None).targets[2].urls, ["https://10.0.0.3:2379"]);
    }

    #[test]
    fn members_that_no_machine_carries_are_asked_where_the_list_has_them() {
        let mut story = Story::with_voters(3, 3);
        story.gone(2);
        story.member(7, true);
        story.unstarted(7);
        let urls = |story: &Story| -> Vec<(TargetKey, Vec<String>)> {
            probes(&story.observation, None).targets.into_iter().skip(2).map(|t| (t.key, t.urls)).collect()
        };
        let at = |host: &str| vec![format!("https://{host}:2379")];
        let both = [(TargetKey::Stranger(id(2)), at("10.0.0.3")), (TargetKey::Stranger(id(7)), at("10.0.0.8"))];
        assert_eq!(urls(&story), both, "the second has not started, and has told nothing but where its peers find it");
        let mut restored = story.clone();
        restored.observation.not_owned = vec![name(2)];
        assert!(urls(&restored).is_empty(), "its Machine is there, and is not ours");
        story.unlisted();
        assert_eq!(urls(&story), both[..1], "what the status remembers of those that had a Machine");
        // A stranger's answer does not count as the answer of a Machine's member.
        let probe = story.observation.probes[&name(1)].clone();
        let answers = [(TargetKey::of(&name(1)), probe.clone()), (TargetKey::Stranger(id(2)), probe)].into();
        story.observation.take(Snapshot { probes: answers, ..Snapshot::default() });
        assert_eq!(story.observation.probes.keys().collect::<Vec<_>>(), [&name(1)]);
        assert_eq!(story.observation.strangers.keys().collect::<Vec<_>>(), [&id(2)]);
    }
}
