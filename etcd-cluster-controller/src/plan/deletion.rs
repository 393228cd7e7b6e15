//! Deleting the EtcdCluster. It asks nothing of etcd, so it finishes in whatever state that is.

use super::retire::going;
use super::{Plan, Step, View, block, has_hook, wait};
use crate::quorum::cluster_going;
use api::conditions::reasons;
use api::names;
use kube::ResourceExt;

/// Machines first, then the finalizer; Secrets and leftovers go with their owner. A running etcd whose Cluster stays goes
/// only with a person's word, should admission have let the deletion pass without it. A Cluster stays also where it no longer
/// names this etcd: its API servers may use it all the same.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    let etcd = &observation.etcd;
    let proof = cluster_going(etcd.metadata.deletion_timestamp.is_some())?;
    let name = etcd.name_any();
    let confirmed = etcd.annotations().get(names::CONFIRM_DELETION_ANNOTATION) == Some(&name);
    if let Some(cluster) = observation.cluster.living()
        && view.has_begun()
        && !confirmed
        && !observation.machines.is_empty()
    {
        let message = format!(
            "the deletion would destroy the data of {} members, and Cluster {cluster} stays. To confirm it: kubectl annotate etcdclusters.{} {name} {}={name}",
            view.roster.members().count(),
            names::ETCD_CLUSTER_GROUP,
            names::CONFIRM_DELETION_ANNOTATION
        );
        return Some(block(reasons::DELETION_NOT_CONFIRMED, message));
    }
    let delete: Vec<String> = observation.live_machines().map(|machine| machine.name.clone()).collect();
    let release = waiting_for_us(view);
    if !delete.is_empty() || !release.is_empty() {
        return Some(Plan::Do(Step::DeleteMachines { delete, release, proof }));
    }
    if !observation.machines.is_empty() {
        let going: Vec<String> = observation.machines.values().map(going).collect();
        return Some(wait(reasons::DELETING, going.join("; ")));
    }
    if etcd.finalizers().iter().any(|finalizer| finalizer == names::ETCD_CLUSTER_FINALIZER) {
        return Some(Plan::Do(Step::RemoveFinalizer));
    }
    let others = etcd.finalizers().join(", ");
    Some(wait(reasons::DELETING, format!("all Machines are gone; it waits for the finalizers of others: {others}")))
}

fn waiting_for_us(view: &View<'_>) -> Vec<String> {
    let leaving = view.observation.machines.values().filter(|machine| machine.deleting && has_hook(machine));
    leaving.map(|machine| machine.name.clone()).collect()
}
