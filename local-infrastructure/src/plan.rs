//! Decides what to do next about a LocalMachine. Pure.

use crate::{
    crd::conditions,
    observation::{BootstrapData, Observation},
};
use controller_support::{Plan, plan::wait};
use std::time::Duration;

/// Pause before the next attempt to read a Secret that a Machine names, but that does not exist yet.
const SECRET_RETRY: Duration = Duration::from_secs(1);

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Add our finalizer to the LocalMachine.
    Adopt,
    /// Make the machine.
    Create,
    /// Start the machine for the first time.
    Start,
    /// Set the provider ID of the LocalMachine.
    Publish,
    /// Remove the machine, and then our finalizer.
    Destroy,
}

/// Decides what to do next.
#[must_use]
pub fn plan(observation: &Observation) -> Plan<Step> {
    if observation.paused {
        return wait(conditions::IS_PAUSED, "The machine is not made while it or the Cluster is paused");
    }
    if observation.deleting {
        return if observation.has_finalizer { Plan::Do(Step::Destroy) } else { Plan::Steady };
    }
    match &observation.local {
        // An existing machine needs nothing more from other objects. It is started once: later, somebody may want it to
        // be off.
        Some(local) if !local.was_started => Plan::Do(Step::Start),
        Some(_) if !observation.has_provider_id => Plan::Do(Step::Publish),
        Some(_) => Plan::Steady,
        None => plan_creation(observation),
    }
}

fn plan_creation(observation: &Observation) -> Plan<Step> {
    if observation.owner.is_none() {
        return wait(conditions::WAITING_FOR_MACHINE, "No Machine owns this LocalMachine");
    }
    if !observation.has_finalizer {
        return Plan::Do(Step::Adopt);
    }
    match &observation.cluster {
        None => {
            let message = format!("Cluster {} does not exist", observation.cluster_name);
            return wait(conditions::WAITING_FOR_CLUSTER, message);
        }
        Some(cluster) if !cluster.infrastructure_ready => {
            let message = "The Cluster's infrastructure is not provisioned";
            return wait(conditions::WAITING_FOR_CLUSTER_INFRASTRUCTURE, message);
        }
        Some(_) => {}
    }
    let waiting_for_data = |message| wait(conditions::WAITING_FOR_BOOTSTRAP_DATA, message);
    match &observation.bootstrap_data {
        BootstrapData::NotNamed => waiting_for_data("The Machine names no Secret with bootstrap data".to_owned()),
        BootstrapData::Missing(name) => {
            let message = format!(
                "Secret {name} with the bootstrap data does not exist or has no key value; tried again every second"
            );
            waiting_for_data(message).again(SECRET_RETRY)
        }
        BootstrapData::Ready(_) => Plan::Do(Step::Create),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::observation::{Local, UserData};
    use controller_support::external::{ClusterView, MachineView};
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use kube::api::DynamicObject;
    use rstest::rstest;
    use serde_json::json;
    use std::net::Ipv4Addr;

    fn cluster(ready: bool) -> ClusterView {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"},
            "status": {"initialization": {"infrastructureProvisioned": ready}},
        }))
        .expect("a Cluster");
        ClusterView::read(&object)
    }

    fn owner() -> MachineView {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "demo-etcd-0"},
        }))
        .expect("a Machine");
        MachineView::read(&object)
    }

    pub(crate) fn local() -> Local {
        Local {
            address: Ipv4Addr::new(10, 77, 0, 10).into(),
            host_name: "demo-etcd-0".to_owned(),
            was_started: true,
            powered_on: true,
            running: true,
            bootstrap: None,
            console_end: String::new(),
        }
    }

    /// All that is needed to create a machine exists.
    pub(crate) fn complete() -> Observation {
        Observation {
            now: Time(Timestamp::from_second(1).expect("a time")),
            deleting: false,
            paused: false,
            has_finalizer: true,
            has_provider_id: false,
            owner: Some(owner()),
            cluster_name: "demo".to_owned(),
            cluster: Some(cluster(true)),
            bootstrap_data: BootstrapData::Ready(UserData(b"#cloud-config".to_vec())),
            local: None,
        }
    }

    #[rstest]
    #[case::all_there(|_: &mut Observation| {}, "Create")]
    #[case::paused(|o: &mut Observation| o.paused = true, "Paused")]
    #[case::paused_deletion(|o: &mut Observation| (o.paused, o.deleting) = (true, true), "Paused")]
    #[case::no_owner(|o: &mut Observation| o.owner = None, "WaitingForMachine")]
    #[case::no_finalizer(|o: &mut Observation| o.has_finalizer = false, "Adopt")]
    #[case::no_cluster(|o: &mut Observation| o.cluster = None, "WaitingForCluster")]
    #[case::no_infrastructure(
        |o: &mut Observation| o.cluster = Some(cluster(false)), "WaitingForClusterInfrastructure"
    )]
    #[case::no_data(
        |o: &mut Observation| o.bootstrap_data = BootstrapData::NotNamed, "WaitingForBootstrapData"
    )]
    #[case::no_secret(
        |o: &mut Observation| o.bootstrap_data = BootstrapData::Missing("s".to_owned()),
        "WaitingForBootstrapData"
    )]
    #[case::died_before_the_start(
        |o: &mut Observation| o.local = Some(Local { was_started: false, ..local() }), "Start"
    )]
    #[case::not_published(|o: &mut Observation| o.local = Some(local()), "Publish")]
    #[case::running(
        |o: &mut Observation| (o.local, o.has_provider_id) = (Some(local()), true), "Steady"
    )]
    #[case::killed_by_somebody(
        |o: &mut Observation| {
            o.local = Some(Local { powered_on: false, running: false, ..local() });
            o.has_provider_id = true;
        },
        "Steady"
    )]
    #[case::owner_gone(
        |o: &mut Observation| (o.local, o.has_provider_id, o.owner) = (Some(local()), true, None), "Steady"
    )]
    #[case::deleted(|o: &mut Observation| (o.deleting, o.local) = (true, Some(local())), "Destroy")]
    #[case::deleted_without_a_machine(|o: &mut Observation| o.deleting = true, "Destroy")]
    #[case::deleted_and_let_go(
        |o: &mut Observation| (o.deleting, o.has_finalizer) = (true, false), "Steady"
    )]
    fn one_thing_follows_from_what_is_observed(#[case] change: fn(&mut Observation), #[case] expected: &str) {
        let mut observation = complete();
        change(&mut observation);
        let summary = match plan(&observation) {
            Plan::Steady => "Steady".to_owned(),
            Plan::Wait(hold) | Plan::Block(hold) => hold.reason.to_owned(),
            Plan::Do(step) => format!("{step:?}"),
        };
        assert_eq!(summary, expected);
    }

    #[test]
    fn only_a_missing_secret_has_to_be_looked_for_again() {
        let again = |bootstrap_data| plan(&Observation { bootstrap_data, ..complete() }).hold().unwrap().again;
        assert_eq!(again(BootstrapData::NotNamed), None);
        assert_eq!(again(BootstrapData::Missing("s".to_owned())), Some(SECRET_RETRY));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = BootstrapData::Missing("demo-data".to_owned());
        for (observation, name) in [
            (Observation { cluster: None, ..complete() }, "Cluster demo "),
            (Observation { bootstrap_data: missing, ..complete() }, "Secret demo-data "),
        ] {
            let plan = plan(&observation);
            let message = &plan.hold().unwrap().message;
            assert!(message.starts_with(name), "{message}");
        }
    }

    #[test]
    fn bootstrap_data_are_not_printed() {
        assert!(!format!("{:?}", complete()).contains("cloud-config"));
    }
}
