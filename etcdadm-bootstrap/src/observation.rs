//! Everything that the plan and the status of a reconcile depend on, as plain data.

use crate::build::objects::LockInformation;
use crate::build::{CertificateAuthority, SecretValues};
use api::EtcdadmConfig;
use api::admission::Admitted;
use api::names;
use controller_support::external::{ClusterView, MachineView, pause_of};
use controller_support::pki::InvalidAuthority;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// Everything that was read, at one point in time.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// When it was read.
    pub now: Timestamp,
    /// The config.
    pub config: Arc<EtcdadmConfig>,
    /// The Machine that owns the config or refers to it.
    pub machine: Option<MachineView>,
    /// The Cluster that the Machine or the config names.
    pub cluster: Option<ClusterView>,
    /// The Secret with the config's name.
    pub data_secret: DataSecret,
    /// etcd's CA.
    pub authority: Option<Result<CertificateAuthority, InvalidAuthority>>,
    /// The init Secret, if it exists.
    pub init: Option<Init>,
    /// Whether the init Secret was read live, and not from the watch.
    pub init_is_live: bool,
    /// Which Machine may initialize etcd.
    pub lock: Lock,
    /// Whether something forbids this Machine to initialize etcd. `None`: not read yet.
    pub guard: Option<Guard>,
    /// Values of the Secrets that the spec refers to. `None`: not read yet.
    pub secret_values: Option<FoundValues>,
    /// The API server's answer when it refused the bootstrap Secret in this reconcile.
    pub refused: Option<String>,
}

/// A read that costs requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Whether the bootstrap Secret that the status names exists, although the watch does not show it.
    DataSecret,
    /// The values of Secrets that the spec refers to. Watching them would mean watching all Secrets.
    SecretValues,
    /// Whether the Machine that holds the lock exists, although the watch does not show it.
    LockHolder,
    /// Whether etcd has been initialized, or may be about to be.
    Guard,
    /// The init Secret as it is now.
    InitSecret,
}

/// The Secret with the config's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataSecret {
    /// The watch does not have it.
    Absent,
    /// The watch does not have it, but the status names it: the watch may lag behind.
    Promised,
    /// This config controls it: it is the bootstrap data, and is never written again.
    Ours,
    /// It belongs to this other owner.
    Foreign(String),
}

/// The content of the init Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    /// Its `clientUrls`. Empty if it has no such key.
    pub client_urls: String,
    /// Its `clusterId`. `None` if it has no such key: it was made by an earlier release, or by hand.
    pub cluster_id: Option<String>,
    /// The Machines that may join. `None`: all.
    pub admitted: Option<Admitted>,
}

impl Init {
    /// Whether a Machine may join.
    pub(crate) fn admits(&self, machine: &MachineView) -> bool {
        self.admitted.as_ref().is_none_or(|admitted| admitted.contains_key(&machine.uid))
    }
}

/// Which Machine may initialize the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// The watch does not have a lock.
    Free,
    /// The config's Machine.
    Ours,
    /// Another Machine.
    Held {
        /// The other Machine.
        holder: LockInformation,
        /// Whether that Machine exists, and not only one with its name. `None`: the watch does not have it, and it has
        /// not been read live.
        exists: Option<bool>,
        /// When that Machine was created. `None`: the watch does not have it.
        created: Option<Timestamp>,
        /// Version of the lock, so that only this state of it is taken over.
        resource_version: String,
    },
    /// The lock of this other Cluster.
    Foreign(String),
    /// A ConfigMap of that name that is not a lock.
    Unreadable,
}

/// What live reads show right before a Machine gets data to initialize etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// etcd has not been initialized, and no other Machine is about to initialize it.
    NotInitialized,
    /// Another Machine, of this name, has bootstrap data: it may be initializing etcd, or may have done so.
    Begun(String),
    /// The EtcdCluster has been initialized, although its init Secret does not exist.
    Initialized,
    /// The EtcdCluster of the Machine is gone or being deleted.
    OwnerGone,
}

/// The values in Secrets that a spec refers to, if they exist.
#[derive(Clone, Debug)]
pub(crate) enum FoundValues {
    /// All of them.
    All(SecretValues),
    /// The first one that does not exist.
    Missing(MissingValue),
}

/// A value that the spec refers to and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingValue {
    /// Path of the field.
    pub field: String,
    /// Name of the Secret.
    pub secret: String,
    /// The key, if the Secret exists without it.
    pub key: Option<String>,
}

impl Observation {
    /// Name of the Cluster: the Machine's, or that in the config's label.
    pub(crate) fn cluster_name(&self) -> Option<&str> {
        let label = self.config.labels().get(names::CLUSTER_NAME_LABEL).map(String::as_str);
        self.machine.as_ref().map(|machine| machine.cluster.as_str()).filter(|name| !name.is_empty()).or(label)
    }

    /// What is paused: the config, its Cluster, or both.
    pub(crate) fn paused(&self) -> Option<String> {
        pause_of(self.config.as_ref(), self.cluster.as_ref())
    }

    /// The age of the config.
    pub(crate) fn age(&self) -> Duration {
        let created = self.config.metadata.creation_timestamp.as_ref();
        let age = created.map_or(SignedDuration::ZERO, |created| self.now.duration_since(created.0));
        age.try_into().unwrap_or_default()
    }
}
