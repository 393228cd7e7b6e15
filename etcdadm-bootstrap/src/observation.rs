//! What a reconcile knows: everything that the plan and the status are made from.

use crate::build::{CertificateAuthority, InvalidAuthority, SecretValues};
use api::EtcdadmConfig;
use api::conditions::DATA_SECRET_AVAILABLE;
use api::names;
use controller_support::loose::{ClusterView, MachineView};
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
    /// The Machine that owns the config.
    pub machine: Option<MachineView>,
    /// The Cluster that Machine or config name.
    pub cluster: Option<ClusterView>,
    /// The Secret with the config's name.
    pub data_secret: DataSecret,
    /// etcd's CA.
    pub authority: Option<Result<CertificateAuthority, InvalidAuthority>>,
    /// The init Secret, if it exists.
    pub init: Option<Init>,
    /// Who may initialize.
    pub lock: Lock,
    /// Read live once the lock is ours: whether there is something that must not be initialized again.
    pub live: Option<Live>,
    /// Values of the Secrets that the spec refers to. Read once nothing else is missing.
    pub secrets: Result<SecretValues, MissingValue>,
    /// What the API server said when it refused the bootstrap Secret in this reconcile.
    pub refused: Option<String>,
}

/// The Secret with the config's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DataSecret {
    /// There is none, as far as is known.
    Absent,
    /// It is controlled by this config: the bootstrap data. It is never written again.
    Ours,
    /// It belongs to somebody else, who is named.
    Foreign(String),
}

/// What the init Secret says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    /// Its `clientUrls`. Empty if it has no such key.
    pub client_urls: String,
    /// UIDs of the Machines that may join. `None`: all.
    pub admitted: Option<Vec<String>>,
}

impl Init {
    /// Whether a Machine may join.
    pub(crate) fn admits(&self, machine: &MachineView) -> bool {
        self.admitted.as_ref().is_none_or(|admitted| admitted.contains(&machine.uid))
    }
}

/// Who may initialize the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Nobody so far, as far as is known.
    Free,
    /// The config's Machine.
    Ours,
    /// Another Machine.
    Held {
        /// Its name.
        holder: String,
        /// Whether that very Machine is still there.
        present: bool,
        /// Version of the lock, so that only this state of it is taken over.
        resource_version: String,
    },
    /// A ConfigMap of that name that is no lock.
    Unreadable,
}

/// What a live read says just before initializing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// Nothing has been initialized, and nobody is about to do it.
    NotInitialized,
    /// A Machine of this name has been given what it needs to initialize the EtcdCluster, and may be doing so.
    Begun(String),
    /// The EtcdCluster has been initialized, although its init Secret is not there.
    Initialized,
    /// The EtcdCluster of the Machine is gone, or going.
    OwnerGone,
}

/// A value that the spec refers to and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingValue {
    /// Path of the field.
    pub field: String,
    /// Name of the Secret.
    pub secret: String,
    /// The key, if the Secret is there without it.
    pub key: Option<String>,
}

impl Observation {
    /// Name of the Cluster: the Machine's, or that in the config's label.
    pub(crate) fn cluster_name(&self) -> Option<&str> {
        let label = self.config.labels().get(names::CLUSTER_NAME_LABEL).map(String::as_str);
        self.machine.as_ref().map(|machine| machine.cluster.as_str()).filter(|name| !name.is_empty()).or(label)
    }

    /// Whether Cluster or config are paused.
    pub(crate) fn paused(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.paused)
            || self.config.annotations().contains_key(names::PAUSED_ANNOTATION)
    }

    /// How long the data has been waited for.
    pub(crate) fn waiting_for(&self) -> Duration {
        let conditions = self.config.status.iter().flat_map(|status| &status.conditions);
        let since = conditions
            .filter(|condition| condition.type_ == DATA_SECRET_AVAILABLE && condition.status == "False")
            .map(|condition| condition.last_transition_time.0)
            .next();
        let waited = since.map_or(SignedDuration::ZERO, |since| self.now.duration_since(since));
        waited.try_into().unwrap_or_default()
    }
}
