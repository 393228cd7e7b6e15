//! What a reconcile works with.

use crate::CONTROLLER;
use crate::mappers::{infrastructure_to_etcd_clusters, reference, template_to_etcd_clusters};
use crate::metrics::Decisions;
use crate::pki::JudgedCas;
use crate::prober::Prober;
use crate::put_off::PutOff;
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{Cached, DeferredStatuses, Events, Followed, Result, Shared, WriteCache, foreign};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::reflector::ObjectRef;
use std::sync::Arc;
use tokio::sync::{OnceCell, mpsc};

/// The clients, watches, caches and prober of this controller.
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) clusters: Cached,
    pub(crate) machines: Cached,
    pub(crate) secrets: Cached,
    pub(crate) configs: Cached,
    pub(crate) prober: Arc<Prober>,
    /// Tasks that nothing waits for, and that are put off because they were refused or have just been done.
    pub(crate) put_off: PutOff,
    pub(crate) written: WriteCache<EtcdCluster>,
    pub(crate) deferred: DeferredStatuses,
    pub(crate) events: Events,
    pub(crate) etcds: Cached,
    pub(crate) judged_cas: Arc<JudgedCas>,
    pub(crate) decisions: Decisions,
    /// Set once the CRD of EtcdadmConfigs is known not to be another provider's.
    own_crd: OnceCell<()>,
    followed: Followed<EtcdCluster>,
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
            put_off: PutOff::default(),
            written: WriteCache::default(),
            deferred: DeferredStatuses::default(),
            events: shared.events(CONTROLLER),
            etcds: shared.caches.watch(&etcds, None),
            judged_cas: Arc::default(),
            decisions: Decisions::new(&shared.metrics),
            own_crd: OnceCell::new(),
            shared,
            followed: Followed::new(changes),
        })
    }

    /// Makes sure that this provider may make EtcdadmConfigs: their CRD is not another provider's.
    ///
    /// # Errors
    /// As [`foreign::refuse`].
    pub(crate) async fn refuse_foreign_crd(&self) -> Result<()> {
        self.own_crd.get_or_try_init(|| foreign::refuse(&self.shared.kinds)).await.copied()
    }

    /// The watch of a kind of template. From the first use on, its changes reach the EtcdClusters that refer to it.
    pub(crate) fn watch_template(&self, kind: &ApiResource) -> Cached {
        let (etcds, template) = (self.etcds.clone(), kind.kind.clone());
        let map = move |object: &DynamicObject| template_to_etcd_clusters(&etcds, object, &template);
        self.followed.watch(&self.shared.caches, kind, None, map)
    }

    /// The watch of a kind of infrastructure of Clusters. From the first use on, each change reaches the EtcdClusters
    /// of Clusters that do not report their infrastructure as ready yet.
    pub(crate) fn watch_infrastructure(&self, kind: &ApiResource) -> Cached {
        let (clusters, etcds, infrastructure) = (self.clusters.clone(), self.etcds.clone(), kind.kind.clone());
        let map =
            move |object: &DynamicObject| infrastructure_to_etcd_clusters(&clusters, &etcds, object, &infrastructure);
        self.followed.watch(&self.shared.caches, kind, None, map)
    }

    /// The watch of DockerMachines that carry members. From the first use on, each change reaches the EtcdCluster that
    /// the DockerMachine's label names.
    pub(crate) fn watch_docker_machines(&self, kind: &ApiResource) -> Cached {
        let label = names::ETCD_CLUSTER_LABEL;
        let labelled = |object: &DynamicObject| object.labels().get(label).map(|name| reference(name, object));
        let map = move |object: &DynamicObject| labelled(object).into_iter().collect();
        self.followed.watch(&self.shared.caches, kind, Some(label), map)
    }
}
