//! What to do next about a LocalMachine: pure.

use crate::{crd::conditions, machine::Bootstrap};
use api::meta::AddressType;
use controller_support::loose::{ClusterView, MachineView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::{fmt, net::Ipv4Addr};

/// Everything that a decision is made from.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When it was observed.
    pub now: Time,
    /// The LocalMachine is being deleted.
    pub deleting: bool,
    /// The LocalMachine has the annotation that pauses it, or its Cluster is paused.
    pub paused: bool,
    /// Our finalizer is on the LocalMachine.
    pub has_finalizer: bool,
    /// The LocalMachine has its id.
    pub has_provider_id: bool,
    /// The Machine that owns the LocalMachine.
    pub owner: Option<MachineView>,
    /// The Cluster that it belongs to.
    pub cluster: Option<ClusterView>,
    /// What the machine is to boot. Not looked for once the machine exists.
    pub bootstrap_data: BootstrapData,
    /// The machine itself.
    pub local: Option<Local>,
}

/// What a machine is to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapData {
    /// The Machine does not name a Secret yet.
    NotNamed,
    /// The Secret of this name does not exist, or has no such key.
    Missing(String),
    /// Here they are.
    Ready(UserData),
}

/// Bootstrap data, which are secret: they are not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(pub Vec<u8>);

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// The machine itself, as its directory shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its host name.
    pub host_name: String,
    /// It has been started at least once.
    pub was_started: bool,
    /// It is meant to be running.
    pub powered_on: bool,
    /// Its first process is there.
    pub running: bool,
    /// How its bootstrap data ended.
    pub bootstrap: Option<Bootstrap>,
    /// The last lines of its console, if its bootstrap data failed.
    pub console_end: String,
}

impl Local {
    /// Its addresses as Cluster API names them.
    #[must_use]
    pub fn addresses(&self) -> [(AddressType, String); 2] {
        [(AddressType::InternalIP, self.address.to_string()), (AddressType::Hostname, self.host_name.clone())]
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing.
    Steady,
    /// Nothing until this changes.
    Wait(Waiting),
    /// Nothing, because it is not allowed.
    Paused,
    /// This, and then ask again.
    Do(Step),
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A Machine that owns the LocalMachine.
    Machine,
    /// The Cluster.
    Cluster,
    /// The Cluster's infrastructure.
    ClusterInfrastructure,
    /// The name of a Secret in the Machine.
    BootstrapData,
    /// The Secret that the Machine names.
    BootstrapSecret,
}

impl Waiting {
    /// The reason of a condition.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Machine => conditions::WAITING_FOR_MACHINE,
            Self::Cluster => conditions::WAITING_FOR_CLUSTER,
            Self::ClusterInfrastructure => conditions::WAITING_FOR_CLUSTER_INFRASTRUCTURE,
            Self::BootstrapData | Self::BootstrapSecret => conditions::WAITING_FOR_BOOTSTRAP_DATA,
        }
    }

    /// The message of a condition.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Machine => "No Machine owns this LocalMachine",
            Self::Cluster => "The Cluster does not exist",
            Self::ClusterInfrastructure => "The Cluster's infrastructure is not provisioned",
            Self::BootstrapData => "The Machine names no Secret with bootstrap data",
            Self::BootstrapSecret => "The Secret with bootstrap data does not exist or has no key `value`",
        }
    }
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put our finalizer on the LocalMachine.
    Adopt,
    /// Make the machine.
    Create,
    /// Start the machine for the first time.
    Start,
    /// Give the LocalMachine its id.
    Publish,
    /// Remove the machine, and then our finalizer.
    Destroy,
}

/// What to do next.
#[must_use]
pub fn plan(observation: &Observation) -> Plan {
    if observation.paused {
        return Plan::Paused;
    }
    if observation.deleting {
        return if observation.has_finalizer { Plan::Do(Step::Destroy) } else { Plan::Steady };
    }
    match &observation.local {
        // A machine that exists needs nothing more from the others. It is started once; later somebody may want it off.
        Some(local) if !local.was_started => Plan::Do(Step::Start),
        Some(_) if !observation.has_provider_id => Plan::Do(Step::Publish),
        Some(_) => Plan::Steady,
        None => plan_creation(observation),
    }
}

fn plan_creation(observation: &Observation) -> Plan {
    if observation.owner.is_none() {
        return Plan::Wait(Waiting::Machine);
    }
    if !observation.has_finalizer {
        return Plan::Do(Step::Adopt);
    }
    match &observation.cluster {
        None => return Plan::Wait(Waiting::Cluster),
        Some(cluster) if !cluster.infrastructure_ready => return Plan::Wait(Waiting::ClusterInfrastructure),
        Some(_) => {}
    }
    match observation.bootstrap_data {
        BootstrapData::NotNamed => Plan::Wait(Waiting::BootstrapData),
        BootstrapData::Missing(_) => Plan::Wait(Waiting::BootstrapSecret),
        BootstrapData::Ready(_) => Plan::Do(Step::Create),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use controller_support::loose::{ClusterView, MachineView};
    use k8s_openapi::jiff::Timestamp;
    use kube::api::DynamicObject;
    use rstest::rstest;
    use serde_json::json;

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
            address: Ipv4Addr::new(10, 77, 0, 10),
            host_name: "demo-etcd-0".to_owned(),
            was_started: true,
            powered_on: true,
            running: true,
            bootstrap: None,
            console_end: String::new(),
        }
    }

    /// Everything is there for a machine to be created.
    pub(crate) fn complete() -> Observation {
        Observation {
            now: Time(Timestamp::from_second(1).expect("a time")),
            deleting: false,
            paused: false,
            has_finalizer: true,
            has_provider_id: false,
            owner: Some(owner()),
            cluster: Some(cluster(true)),
            bootstrap_data: BootstrapData::Ready(UserData(b"#cloud-config".to_vec())),
            local: None,
        }
    }

    #[rstest]
    #[case::all_there(|_: &mut Observation| {}, Plan::Do(Step::Create))]
    #[case::paused(|o: &mut Observation| o.paused = true, Plan::Paused)]
    #[case::paused_deletion(|o: &mut Observation| (o.paused, o.deleting) = (true, true), Plan::Paused)]
    #[case::no_owner(|o: &mut Observation| o.owner = None, Plan::Wait(Waiting::Machine))]
    #[case::no_finalizer(|o: &mut Observation| o.has_finalizer = false, Plan::Do(Step::Adopt))]
    #[case::no_cluster(|o: &mut Observation| o.cluster = None, Plan::Wait(Waiting::Cluster))]
    #[case::no_infrastructure(
        |o: &mut Observation| o.cluster = Some(cluster(false)), Plan::Wait(Waiting::ClusterInfrastructure)
    )]
    #[case::no_data(
        |o: &mut Observation| o.bootstrap_data = BootstrapData::NotNamed, Plan::Wait(Waiting::BootstrapData)
    )]
    #[case::no_secret(
        |o: &mut Observation| o.bootstrap_data = BootstrapData::Missing("s".to_owned()),
        Plan::Wait(Waiting::BootstrapSecret)
    )]
    #[case::died_before_the_start(
        |o: &mut Observation| o.local = Some(Local { was_started: false, ..local() }), Plan::Do(Step::Start)
    )]
    #[case::not_published(|o: &mut Observation| o.local = Some(local()), Plan::Do(Step::Publish))]
    #[case::running(
        |o: &mut Observation| (o.local, o.has_provider_id) = (Some(local()), true), Plan::Steady
    )]
    #[case::killed_by_somebody(
        |o: &mut Observation| {
            o.local = Some(Local { powered_on: false, running: false, ..local() });
            o.has_provider_id = true;
        },
        Plan::Steady
    )]
    #[case::owner_gone(
        |o: &mut Observation| (o.local, o.has_provider_id, o.owner) = (Some(local()), true, None), Plan::Steady
    )]
    #[case::deleted(|o: &mut Observation| (o.deleting, o.local) = (true, Some(local())), Plan::Do(Step::Destroy))]
    #[case::deleted_without_a_machine(|o: &mut Observation| o.deleting = true, Plan::Do(Step::Destroy))]
    #[case::deleted_and_let_go(
        |o: &mut Observation| (o.deleting, o.has_finalizer) = (true, false), Plan::Steady
    )]
    fn one_thing_follows_from_what_is_observed(#[case] change: fn(&mut Observation), #[case] expected: Plan) {
        let mut observation = complete();
        change(&mut observation);
        assert_eq!(plan(&observation), expected);
    }

    #[test]
    fn bootstrap_data_are_not_printed() {
        assert!(!format!("{:?}", complete()).contains("cloud-config"));
    }
}
