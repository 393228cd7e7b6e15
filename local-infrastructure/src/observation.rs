//! The input of a decision about a LocalMachine, as plain data.

use crate::machine::Bootstrap;
use api::meta::AddressType;
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::{fmt, net::IpAddr};

/// All that a decision depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When it was observed.
    pub now: Time,
    /// Whether the LocalMachine is being deleted.
    pub deleting: bool,
    /// Whether the LocalMachine has an annotation that pauses it, or its Cluster is paused.
    pub paused: bool,
    /// Whether our finalizer is on the LocalMachine.
    pub has_finalizer: bool,
    /// Whether the LocalMachine has its provider ID.
    pub has_provider_id: bool,
    /// The Machine that owns the LocalMachine.
    pub owner: Option<MachineView>,
    /// Name of the Cluster that it belongs to.
    pub cluster_name: String,
    /// That Cluster, if it exists.
    pub cluster: Option<ClusterView>,
    /// The bootstrap data for the machine. It is not read once the machine exists.
    pub bootstrap_data: BootstrapData,
    /// The machine itself.
    pub local: Option<Local>,
}

/// The bootstrap data for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootstrapData {
    /// The Machine does not name a Secret yet.
    NotNamed,
    /// The Secret with this name does not exist, or has no such key.
    Missing(String),
    /// The data.
    Ready(UserData),
}

/// Bootstrap data. It is secret, so it is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(pub Vec<u8>);

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

/// The machine itself, according to its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Its address.
    pub address: IpAddr,
    /// Its host name.
    pub host_name: String,
    /// Whether it has been started at least once.
    pub was_started: bool,
    /// Whether it should be running.
    pub powered_on: bool,
    /// Whether its first process exists.
    pub running: bool,
    /// The result of its bootstrap.
    pub bootstrap: Option<Bootstrap>,
    /// The last lines of its console, if its bootstrap data failed.
    pub console_end: String,
}

impl Local {
    /// Its addresses, with Cluster API's names for them.
    #[must_use]
    pub fn addresses(&self) -> [(AddressType, String); 2] {
        [(AddressType::InternalIP, self.address.to_string()), (AddressType::Hostname, self.host_name.clone())]
    }
}
