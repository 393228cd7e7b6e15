//! The context of a reconcile: watches, caches and the means to write.

use crate::adapter::Adapters;
use crate::mappers::concerned;
use crate::observation::WrittenEndpoints;
use controller_support::apply::CATCH_UP;
use controller_support::external::{ClusterView, Reference};
use controller_support::kinds::Contracts;
use controller_support::{
    Cached, DeferredStatuses, Events, Failures, Followed, Result, Shared, TtlCache, WriteCache, apply,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long this process remembers when it last wrote a condition; see [`crate::status::report`].
const REPORTED: Duration = Duration::from_secs(60);
/// How long this process remembers which endpoints it wrote last: longer than corrections count.
const WRITTEN: Duration = Duration::from_secs(2 * 3600);
/// The delay after a write that a webhook or policy refuses.
pub const REFUSED: Duration = Duration::from_secs(60);
/// How long the list of the kinds of etcd providers is cached.
const PROVIDERS: Duration = Duration::from_secs(60);

/// What reconciles share.
pub struct Context {
    /// What all controllers share.
    pub shared: Shared,
    /// Name of the controller: in logs, metrics and events, and as field manager.
    pub name: &'static str,
    /// All Clusters.
    pub clusters: Cached,
    /// Watches of other objects whose changes reconcile Clusters.
    followed: Followed<DynamicObject>,
    /// Answers to our writes that the watches may not have yet.
    pub written: WriteCache<DynamicObject>,
    /// How many reconciles of a Cluster in a row were outdated, because an object that they were about to write had
    /// changed. By the Cluster's UID.
    pub conflicts: Failures,
    /// How to give control planes an external etcd.
    pub adapters: Adapters,
    /// Our events.
    pub events: Events,
    /// The condition that was written last into a Cluster or control plane, by the UID of that object.
    pub reported: TtlCache<String, Condition>,
    /// Clusters whose first condition is deferred for a moment.
    pub deferred: DeferredStatuses,
    /// The endpoints that were written last into a control plane, by its UID. The annotation that records them
    /// disappears if somebody replaces the whole object. A tool that does this again and again has to meet the back-off
    /// too.
    pub endpoints: TtlCache<String, WrittenEndpoints>,
    /// Watches of the kinds of control planes that Clusters refer to, or have referred to.
    control_planes: Mutex<Vec<Cached>>,
    /// Kinds of etcd providers, as (group, kind).
    pub providers: TtlCache<(), Vec<(String, String)>>,
}

impl Context {
    /// The context of one controller, and the Clusters that are to be reconciled because other objects changed.
    pub fn new(
        shared: &Shared,
        name: &'static str,
        clusters: &ApiResource,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<ObjectRef<DynamicObject>>) {
        let clusters = shared.caches.watch(clusters, None);
        let (sender, receiver) = mpsc::unbounded_channel();
        let context = Self {
            name,
            followed: Followed::new(sender),
            clusters,
            written: WriteCache::default(),
            conflicts: Failures::default(),
            adapters: Adapters::default(),
            events: shared.events(name),
            reported: TtlCache::new(REPORTED),
            deferred: DeferredStatuses::default(),
            endpoints: TtlCache::new(WRITTEN),
            control_planes: Mutex::default(),
            providers: TtlCache::new(PROVIDERS),
            shared: shared.clone(),
        };
        (Arc::new(context), receiver)
    }

    /// What to do if an object has changed since it was observed. Normally the watch is about to report the change.
    /// After a restore of the management cluster, the write cache may be wrong, so this forgets its entries. The watch
    /// may also be wrong until it lists again, so the delay grows with each outdated reconcile in a row.
    pub fn outdated<'a>(&self, cluster: &ClusterView, uids: impl Iterator<Item = &'a str>) -> Action {
        uids.for_each(|uid| self.written.forget(uid));
        Action::requeue(self.conflicts.next(cluster.uid.clone()).max(CATCH_UP))
    }

    /// The API of a kind of another provider, in one namespace. A kind that is known costs no request.
    ///
    /// # Errors
    /// The kind is not served.
    pub async fn api(
        &self,
        reference: &Reference,
        contracts: Contracts,
        namespace: &str,
    ) -> Result<Api<DynamicObject>> {
        let resource = self.shared.kinds.find(&reference.group, &reference.kind, contracts).await?;
        Ok(apply::dynamic(&self.shared.client, &resource, namespace))
    }

    /// The Secrets of a namespace.
    pub fn secrets(&self, namespace: &str) -> Api<DynamicObject> {
        apply::dynamic(&self.shared.client, &ApiResource::erase::<Secret>(&()), namespace)
    }

    /// Remembers the watch of a kind of control planes.
    pub fn keep_control_planes(&self, watch: &Cached) {
        let mut known = self.control_planes.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|known| known.resource() == watch.resource()) {
            known.push(watch.clone());
        }
    }

    /// The watches of [`Context::keep_control_planes`].
    pub fn control_planes(&self) -> Vec<Cached> {
        self.control_planes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A shared watch whose changes reconcile the Clusters that they concern.
    ///
    /// # Errors
    /// The API server does not answer the first list, or refuses it.
    pub async fn watch(&self, resource: &ApiResource, selector: Option<&str>) -> Result<Cached> {
        let (clusters, kind) = (self.clusters.clone(), resource.clone());
        let map = move |changed: &DynamicObject| concerned(&clusters, &kind, changed);
        let watch = self.followed.watch(&self.shared.caches, resource, selector, map);
        watch.ensure_ready().await?;
        Ok(watch)
    }
}
