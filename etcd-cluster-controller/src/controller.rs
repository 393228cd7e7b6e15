//! Watches, mappers and the reconcile.

use crate::etcd_access::Accesses;
use crate::execute::{Failed, Outcome, execute, own};
use crate::metrics::EtcdMetrics;
use crate::observe::observe;
use crate::plan::{Plan, Reason, Step, due, owns_template, plan};
use crate::status::{differs, status, transitions::transitions};
use crate::{CONTROLLER, build};
use api::EtcdCluster;
use api::conditions::reasons;
use api::etcd_cluster::EtcdClusterStatus;
use api::names;
use controller_support::error::{answer, is_invalid, is_not_found};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::loose::{ClusterView, Reference};
use controller_support::{Cached, Error, Events, Freshest, Result, Shared, apply, drive};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use kube::discovery::ApiResource;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// What a reconcile works with.
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) clusters: Cached,
    pub(crate) machines: Cached,
    pub(crate) secrets: Cached,
    pub(crate) accesses: Accesses,
    pub(crate) failed: Failed,
    pub(crate) fresh: Freshest<EtcdCluster>,
    pub(crate) events: Events,
    etcds: Store<EtcdCluster>,
    watched: Mutex<HashSet<ApiResource>>,
    changes: mpsc::UnboundedSender<ObjectRef<EtcdCluster>>,
}

impl Context {
    /// The watch of a kind of template. From the first use on, its changes reach the EtcdClusters that refer to it.
    pub(crate) fn watch_template(&self, kind: &ApiResource) -> Cached {
        let (etcds, template) = (self.etcds.clone(), kind.kind.clone());
        self.watch(kind, None, move |object| users_of(&etcds, object, &template))
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

/// Runs the controller until shutdown.
///
/// # Errors
/// If Cluster API's kinds cannot be looked up.
pub async fn run(shared: Shared) -> Result<()> {
    let clusters = shared.kinds.find(names::CLUSTER_GROUP, "Cluster", CLUSTER_API_CONTRACTS).await?;
    let machines = shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
    let clusters = shared.caches.watch(&clusters, None);
    let machines = shared.caches.watch(&machines, None);
    let secrets = shared.caches.watch(&ApiResource::erase::<Secret>(&()), Some(names::ETCD_CLUSTER_LABEL));

    let controller = Controller::new(Api::<EtcdCluster>::all(shared.client.clone()), watcher::Config::default());
    let (changes, events) = mpsc::unbounded_channel();
    let etcds = controller.store();
    shared.metrics.register(|registry| registry.register_collector(Box::new(EtcdMetrics(etcds.clone()))));
    let context = Arc::new(Context {
        accesses: Accesses::default(),
        failed: Failed::default(),
        fresh: Freshest::default(),
        events: shared.events(CONTROLLER),
        watched: Mutex::default(),
        shared: shared.clone(),
        clusters,
        machines,
        secrets,
        etcds,
        changes,
    });
    let controller = controller
        .reconcile_on(mapped(&context.machines, |machine| owner(&machine).into_iter().collect()))
        .reconcile_on(mapped(&context.secrets, {
            let (etcds, clusters) = (context.etcds.clone(), context.clusters.clone());
            move |secret| {
                let cluster = secret.labels().get(names::CLUSTER_NAME_LABEL);
                let cluster = cluster.and_then(|name| clusters.get(&secret.namespace().unwrap_or_default(), name));
                of_secret(&etcds, cluster.as_deref(), &secret)
            }
        }))
        .reconcile_on(mapped(&context.clusters, {
            let etcds = context.etcds.clone();
            move |cluster| of_cluster(&etcds, &cluster)
        }))
        .reconcile_on(stream::unfold(events, |mut events| async { Some((events.recv().await?, events)) }));
    drive(CONTROLLER, controller, &shared, context, reconcile).await;
    Ok(())
}

fn mapped(
    cached: &Cached,
    map: impl Fn(Arc<DynamicObject>) -> Vec<ObjectRef<EtcdCluster>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<EtcdCluster>> + Send + 'static {
    cached.changes().flat_map(move |object| stream::iter(map(object)))
}

/// The EtcdCluster that controls a Machine.
fn owner(machine: &DynamicObject) -> Option<ObjectRef<EtcdCluster>> {
    let owner = machine.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    (owner.kind == "EtcdCluster").then(|| reference(&owner.name, machine))
}

/// The EtcdCluster that a Secret was made for, and those of its Cluster: one may wait for the Secret of another to go.
fn of_secret(
    etcds: &Store<EtcdCluster>,
    cluster: Option<&DynamicObject>,
    secret: &DynamicObject,
) -> Vec<ObjectRef<EtcdCluster>> {
    let labelled = secret.labels().get(names::ETCD_CLUSTER_LABEL).map(|name| reference(name, secret));
    let beside = cluster.map(|cluster| of_cluster(etcds, cluster)).unwrap_or_default();
    labelled.into_iter().chain(beside).collect()
}

/// The EtcdCluster that a Cluster names, and those that say they are for it.
fn of_cluster(etcds: &Store<EtcdCluster>, cluster: &DynamicObject) -> Vec<ObjectRef<EtcdCluster>> {
    let view = ClusterView::read(cluster);
    let named = match &view.etcd {
        Some(Ok(Reference { kind, name, .. })) if kind == "EtcdCluster" => Some(name.clone()),
        _ => None,
    };
    let claiming = etcds.state_filter(|etcd| {
        etcd.namespace().as_deref() == Some(&view.namespace)
            && (etcd.labels().get(names::CLUSTER_NAME_LABEL) == Some(&view.name)
                || named.as_deref() == etcd.metadata.name.as_deref())
    });
    claiming.iter().map(|etcd| ObjectRef::from_obj(etcd.as_ref())).collect()
}

fn users_of(etcds: &Store<EtcdCluster>, template: &DynamicObject, kind: &str) -> Vec<ObjectRef<EtcdCluster>> {
    let users = etcds.state_filter(|etcd| {
        let wanted = &etcd.spec.infrastructure_template;
        etcd.namespace() == template.namespace() && wanted.kind == kind && wanted.name == template.name_any()
    });
    users.iter().map(|etcd| ObjectRef::from_obj(etcd.as_ref())).collect()
}

fn reference(name: &str, beside: &DynamicObject) -> ObjectRef<EtcdCluster> {
    ObjectRef::new(name).within(&beside.namespace().unwrap_or_default())
}

async fn reconcile(etcd: Arc<EtcdCluster>, context: Arc<Context>) -> Result<Action> {
    let seen = observe(&context, context.fresh.pick(etcd)).await?;
    let mut plan = plan(&seen);
    let mut failure = None;
    if let Plan::Do(step) = &plan {
        tracing::info!(?step, "doing");
        match execute(&context, &seen, step).await {
            Ok(Outcome::Done | Outcome::Outdated) => {}
            Ok(Outcome::Blocked(reason)) => plan = Plan::Block(reason),
            // Trying again soon does not help, and whoever looks at the object should see why nothing happens.
            Err(Error::Api { doing, source }) if is_invalid(&source) => {
                tracing::warn!(doing, error = %source, "refused");
                plan =
                    Plan::Block(Reason { reason: reasons::REFUSED, message: format!("{doing}: {}", answer(&source)) });
            }
            Err(error) => failure = Some(error),
        }
    }
    if plan == Plan::Do(Step::RemoveFinalizer) && failure.is_none() {
        // There is nothing left to write a status to.
        return Ok(Action::await_change());
    }
    let after = status(&seen, &plan, &build::spec_hash(&seen.etcd));
    write_status(&context, &seen.etcd, after).await?;
    if owns_template(&seen, &plan) {
        own(&context, &seen).await;
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(due(&seen, &plan).map_or_else(Action::await_change, Action::requeue)),
    }
}

/// Writes the status if it differs, and tells of what has changed with it.
async fn write_status(context: &Context, etcd: &EtcdCluster, after: EtcdClusterStatus) -> Result<()> {
    if !differs(etcd.status.as_ref(), &after) {
        return Ok(());
    }
    let api: Api<EtcdCluster> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    let object = json!({
        "apiVersion": EtcdCluster::api_version(&()),
        "kind": EtcdCluster::kind(&()),
        "metadata": {"name": etcd.name_any(), "uid": etcd.uid()},
        "status": after,
    });
    match apply::apply_status(&api, CONTROLLER, &etcd.name_any(), &object).await {
        Ok(answer) => context.fresh.remember(answer),
        Err(Error::Api { source, .. }) if is_not_found(&source) => return Ok(()),
        Err(error) => return Err(error),
    }
    for transition in transitions(&etcd.status.clone().unwrap_or_default(), &after) {
        let (about, action, reason) = (etcd.object_ref(&()), transition.action, transition.reason);
        if transition.warning {
            context.events.warning(&about, action, reason, transition.note).await;
        } else {
            context.events.normal(&about, action, reason, transition.note).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use kube::runtime::reflector;

    #[test]
    fn a_secret_that_goes_wakes_the_etcd_cluster_that_takes_its_place() {
        let (store, mut writer) = reflector::store::<EtcdCluster>();
        writer.apply_watcher_event(&watcher::Event::Apply(Story::new(1).etcd().clone()));
        let object = |value| serde_json::from_value::<DynamicObject>(value).unwrap();
        let cluster = object(json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {
            "name": "demo", "namespace": "default", "annotations": {names::MANAGED_ETCD_ANNOTATION: "demo-etcd"}}}));
        let secret = object(json!({"metadata": {"name": "demo-managed-etcd", "namespace": "default",
            "labels": {names::ETCD_CLUSTER_LABEL: "old", names::CLUSTER_NAME_LABEL: "demo"}}}));
        let names = |cluster| of_secret(&store, cluster, &secret).into_iter().map(|etcd| etcd.name).collect::<Vec<_>>();
        assert_eq!(names(Some(&cluster)), ["old", "demo-etcd"]);
        assert_eq!(names(None), ["old"]);
    }
}
