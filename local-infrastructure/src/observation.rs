//! What a decision about a LocalMachine is made from: plain data.

use crate::machine::Bootstrap;
use api::meta::AddressType;
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::{fmt, net::IpAddr};

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
    /// Name of the Cluster that it belongs to.
    pub cluster_name: String,
    /// That Cluster, if it exists.
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
    pub address: IpAddr,
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
