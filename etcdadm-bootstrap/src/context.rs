//! The context of a reconcile: the watches, the client for live reads and writes, and what it has found out so far.

use crate::CONTROLLER;
use crate::build::objects::LOCK_INFORMATION;
use crate::observation::{DataSecret, FoundValues, Guard, Init};
use api::{EtcdadmConfig, names};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Cached, DeferredStatuses, Events, Failures, Result, Scope, Shared, WriteCache};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};

/// What every reconcile shares.
pub(crate) struct Context {
    pub client: Client,
    pub scope: Scope,
    pub configs: Cached,
    pub machines: Cached,
    pub clusters: Cached,
    pub secrets: Cached,
    pub config_maps: Cached,
    pub events: Events,
    pub written: WriteCache<EtcdadmConfig>,
    /// How many times in a row a config had changed when its status was to be written, by its UID.
    pub conflicts: Failures,
    pub deferred: DeferredStatuses,
}

impl Context {
    /// Starts the watches.
    ///
    /// # Errors
    /// If Cluster API's kinds cannot be looked up.
    pub(crate) async fn new(shared: &Shared) -> Result<Self> {
        let machines = shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
        let clusters = shared.kinds.find(names::CLUSTER_GROUP, "Cluster", CLUSTER_API_CONTRACTS).await?;
        let labelled = Some(names::ETCD_CLUSTER_LABEL);
        Ok(Self {
            client: shared.client.clone(),
            scope: shared.scope.clone(),
            configs: shared.caches.watch(&ApiResource::erase::<EtcdadmConfig>(&()), None),
            machines: shared.caches.watch(&machines, None),
            clusters: shared.caches.watch(&clusters, None),
            secrets: shared.caches.watch(&ApiResource::erase::<Secret>(&()), labelled),
            config_maps: shared.caches.watch(&ApiResource::erase::<ConfigMap>(&()), labelled),
            events: shared.events(CONTROLLER),
            written: WriteCache::default(),
            conflicts: Failures::default(),
            deferred: DeferredStatuses::default(),
        })
    }
}

/// What one reconcile has read live, has written, or has learned from a refusal. It takes precedence over the watches,
/// which lag behind.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub data_secret: Option<DataSecret>,
    pub values: Option<FoundValues>,
    /// The init Secret, or that it does not exist. `None`: not read.
    pub init: Option<Option<Init>>,
    pub guard: Option<Guard>,
    pub holder_exists: Option<bool>,
    pub refused: Option<String>,
    /// The note of the event about the bootstrap Secret that was created.
    pub created: Option<String>,
    lock: Option<LockRecord>,
}

impl Reads {
    pub(crate) fn lock(&self) -> Option<&LockRecord> {
        self.lock.as_ref()
    }

    /// Invariant: what was read about a lock, or because of it, does not outlive it.
    pub(crate) fn set_lock(&mut self, lock: Option<LockRecord>) {
        self.lock = lock;
        self.holder_exists = None;
        self.guard = None;
    }
}

/// The init lock as it was read.
#[derive(Clone, Debug)]
pub(crate) struct LockRecord {
    /// The Cluster that its label names. A copy that a person has restored may lack the label.
    pub cluster: Option<String>,
    pub information: String,
    pub resource_version: String,
}

impl LockRecord {
    pub(crate) fn read(lock: &DynamicObject) -> Self {
        let information = lock.data["data"][LOCK_INFORMATION].as_str().unwrap_or_default().to_owned();
        let cluster = lock.labels().get(names::CLUSTER_NAME_LABEL).cloned();
        Self { cluster, information, resource_version: lock.resource_version().unwrap_or_default() }
    }
}

impl From<&ConfigMap> for LockRecord {
    fn from(lock: &ConfigMap) -> Self {
        let information = lock.data.as_ref().and_then(|data| data.get(LOCK_INFORMATION)).cloned().unwrap_or_default();
        let cluster = lock.labels().get(names::CLUSTER_NAME_LABEL).cloned();
        Self { cluster, information, resource_version: lock.resource_version().unwrap_or_default() }
    }
}
