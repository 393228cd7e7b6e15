//! What a reconcile works with.

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

/// For how long it matters when a condition was written last; see [`crate::status::report`].
const REPORTED: Duration = Duration::from_secs(60);
/// For how long this process remembers which endpoints were written last: longer than corrections are.
const WRITTEN: Duration = Duration::from_secs(2 * 3600);
/// After a write that somebody's webhook or policy refuses.
pub const REFUSED: Duration = Duration::from_secs(60);
/// For how long the kinds of etcd providers are taken as they were listed.
const PROVIDERS: Duration = Duration::from_secs(60);

/// What reconciles share.
pub struct Context {
    /// What all controllers share.
    pub shared: Shared,
    /// Name of the controller: in logs, metrics and events, and as field manager.
    pub name: &'static str,
    /// All Clusters.
    pub clusters: Cached,
    /// What reconciles Clusters besides themselves.
    followed: Followed<DynamicObject>,
    /// Answers to our writes that the watches may not have yet.
    pub written: WriteCache<DynamicObject>,
    /// How often in a row something had changed that a Cluster's reconcile was about to write to, by its UID.
    pub conflicts: Failures,
    /// How control planes are told about etcd.
    pub adapters: Adapters,
    /// Our events.
    pub events: Events,
    /// The condition that was written last into a Cluster or control plane, by its UID.
    pub reported: TtlCache<String, Condition>,
    /// Clusters whose first condition is left unwritten for a moment.
    pub deferred: DeferredStatuses,
    /// The endpoints that were written last into a control plane, by its UID: its annotation goes when somebody
    /// replaces the whole object, and a fight with a tool that does so must calm down too.
    pub endpoints: TtlCache<String, WrittenEndpoints>,
    /// Watches of the kinds of control planes that Clusters refer to, or have referred to.
    control_planes: Mutex<Vec<Cached>>,
    /// Kinds of etcd providers, as (group, kind).
    pub providers: TtlCache<(), Vec<(String, String)>>,
}

impl Context {
    /// The context of one controller, and what reconciles Clusters besides themselves.
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

    /// An object has changed since it was observed: the watch is about to tell. Unless it is what we remember that is not
    /// true any more, because the management cluster was restored; or what the watch has, until it lists again.
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
    /// There is no first list: the API server does not answer, or refuses it.
    pub async fn watch(&self, resource: &ApiResource, selector: Option<&str>) -> Result<Cached> {
        let (clusters, kind) = (self.clusters.clone(), resource.clone());
        let map = move |changed: &DynamicObject| concerned(&clusters, &kind, changed);
        let watch = self.followed.watch(&self.shared.caches, resource, selector, map);
        watch.ensure_ready().await?;
        Ok(watch)
    }
}
