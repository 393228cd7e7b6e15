//! What a reconcile works with.

use crate::CONTROLLER;
use crate::mappers::{reference, template_to_etcd_clusters};
use crate::metrics::Decisions;
use crate::observe::JudgedCas;
use crate::prober::Prober;
use crate::untold::Untold;
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Cached, Events, Result, Shared, TtlCache, WriteCache};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long what was refused and does not matter now is not tried again. Reconciles may come several times a second.
pub(crate) const REFUSED_TTL: Duration = Duration::from_secs(600);

/// Clients, watches, memories and the prober.
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) clusters: Cached,
    pub(crate) machines: Cached,
    pub(crate) secrets: Cached,
    pub(crate) configs: Cached,
    pub(crate) prober: Arc<Prober>,
    /// What has been refused, and does not matter now.
    pub(crate) refused: TtlCache<String, ()>,
    pub(crate) written: WriteCache<EtcdCluster>,
    pub(crate) untold: Untold,
    pub(crate) events: Events,
    pub(crate) etcds: Cached,
    pub(crate) judged_cas: Arc<JudgedCas>,
    pub(crate) decisions: Decisions,
    watched: Mutex<HashSet<ApiResource>>,
    changes: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>,
}

impl Context {
    /// Starts the watches. `changes` receives the EtcdClusters to reconcile.
    ///
    /// # Errors
    /// If Cluster API's kinds cannot be looked up.
    pub(crate) async fn new(shared: Shared, changes: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>) -> Result<Self> {
        let clusters = shared.kinds.find(names::CLUSTER_GROUP, "Cluster", CLUSTER_API_CONTRACTS).await?;
        let machines = shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
        let etcds = ApiResource::erase::<EtcdCluster>(&());
        let (secrets, configs) = (ApiResource::erase::<Secret>(&()), ApiResource::erase::<EtcdadmConfig>(&()));
        let ours = Some(names::ETCD_CLUSTER_LABEL);
        Ok(Self {
            clusters: shared.caches.watch(&clusters, None),
            machines: shared.caches.watch(&machines, None),
            secrets: shared.caches.watch(&secrets, ours),
            configs: shared.caches.watch(&configs, ours),
            prober: Arc::new(Prober::new(changes.clone(), &shared.metrics)),
            refused: TtlCache::new(REFUSED_TTL),
            written: WriteCache::default(),
            untold: Untold::default(),
            events: shared.events(CONTROLLER),
            watched: Mutex::default(),
            etcds: shared.caches.watch(&etcds, None),
            judged_cas: Arc::default(),
            decisions: Decisions::new(&shared.metrics),
            shared,
            changes,
        })
    }

    /// The watch of a kind of template. From the first use on, its changes reach the EtcdClusters that refer to it.
    pub(crate) fn watch_template(&self, kind: &ApiResource) -> Cached {
        let (etcds, template) = (self.etcds.clone(), kind.kind.clone());
        self.watch(kind, None, move |object| template_to_etcd_clusters(&etcds, object, &template))
    }

    /// The watch of DockerMachines that carry members. From the first use on, changes reach the EtcdClusters they are of.
    pub(crate) fn watch_docker_machines(&self, kind: &ApiResource) -> Cached {
        let labelled =
            |object: &DynamicObject| object.labels().get(names::ETCD_CLUSTER_LABEL).map(|name| reference(name, object));
        self.watch(kind, Some(names::ETCD_CLUSTER_LABEL), move |object| labelled(object).into_iter().collect())
    }

    /// A watch that is started on first use, and whose changes then reach the EtcdClusters that `map` gives.
    fn watch(
        &self,
        kind: &ApiResource,
        selector: Option<&str>,
        map: impl Fn(&DynamicObject) -> Vec<ObjectRef<EtcdCluster>> + Send + 'static,
    ) -> Cached {
        let cached = self.shared.caches.watch(kind, selector);
        let mut known = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if known.insert(kind.clone()) {
            let (mut changes, sender) = (Box::pin(cached.changes()), self.changes.clone());
            tokio::spawn(async move {
                while let Some(object) = changes.next().await {
                    for etcd in map(&object) {
                        // The receiver ends with the controller, and then nobody needs to know.
                        let _ = sender.send(etcd);
                    }
                }
            });
        }
        cached
    }
}
