//! What a reconcile knows: everything that the plan and the status are made from.

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
    /// The Cluster that Machine or config name.
    pub cluster: Option<ClusterView>,
    /// The Secret with the config's name.
    pub data_secret: DataSecret,
    /// etcd's CA.
    pub authority: Option<Result<CertificateAuthority, InvalidAuthority>>,
    /// The init Secret, if it exists.
    pub init: Option<Init>,
    /// Whether it was read live, and not from the watch.
    pub init_is_live: bool,
    /// Who may initialize.
    pub lock: Lock,
    /// Whether there is something that must not be initialized again. `None`: not read yet.
    pub guard: Option<Guard>,
    /// Values of the Secrets that the spec refers to. `None`: not read yet.
    pub secret_values: Option<FoundValues>,
    /// What the API server said when it refused the bootstrap Secret in this reconcile.
    pub refused: Option<String>,
}

/// What only the API server can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Whether the bootstrap Secret that the status names exists, although the watch does not show it.
    DataSecret,
    /// The values of Secrets that the spec refers to. To watch them would be to watch all Secrets.
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
    /// The watch does not know of one.
    Absent,
    /// The same, but the status names it: the watch may lag behind.
    Promised,
    /// It is controlled by this config: the bootstrap data. It is never written again.
    Ours,
    /// It belongs to this other owner.
    Foreign(String),
}

/// What the init Secret says.
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

/// Who may initialize the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// The watch does not know of a lock.
    Free,
    /// The config's Machine.
    Ours,
    /// Another Machine.
    Held {
        /// The other Machine.
        holder: LockInformation,
        /// Whether that very Machine exists. `None`: the watch does not know of it, and the API server has not been asked.
        exists: Option<bool>,
        /// When it was created. `None`: the watch does not know of it.
        created: Option<Timestamp>,
        /// Version of the lock, so that only this state of it is taken over.
        resource_version: String,
    },
    /// A ConfigMap of that name that is not a lock.
    Unreadable,
}

/// What live reads say just before a Machine is made to initialize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing has been initialized, and no other Machine is about to do it.
    NotInitialized,
    /// Another Machine, of this name, has bootstrap data: it may be initializing etcd, or may have done so.
    Begun(String),
    /// The EtcdCluster has been initialized, although its init Secret is not there.
    Initialized,
    /// The EtcdCluster of the Machine is gone, or going.
    OwnerGone,
}

/// What was found of the values in Secrets that a spec refers to.
#[derive(Clone, Debug)]
pub(crate) enum FoundValues {
    /// All of them.
    All(SecretValues),
    /// The first that does not exist.
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

    /// How long there has been the config.
    pub(crate) fn age(&self) -> Duration {
        let created = self.config.metadata.creation_timestamp.as_ref();
        let age = created.map_or(SignedDuration::ZERO, |created| self.now.duration_since(created.0));
        age.try_into().unwrap_or_default()
    }
}
