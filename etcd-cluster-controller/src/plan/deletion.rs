//! Deletion of the EtcdCluster. It asks nothing of etcd, so it finishes whatever state etcd is in.

use super::retire::going;
use super::{Plan, Step, View, block, wait};
use crate::observation::{ClusterLink, has_hook};
use crate::quorum::cluster_going;
use api::conditions::reasons;
use api::{EtcdCluster, names};
use kube::ResourceExt;

/// Deletes the Machines first, and then removes the finalizer. The Secrets and leftovers go with the EtcdCluster, which
/// owns them.
///
/// If the Cluster of a running etcd stays, etcd is deleted only after a person has confirmed it, even if the admission
/// policy has let the deletion pass without that. A Cluster also stays if it no longer names this etcd, because its API
/// servers may still use it. For a Cluster that is being deleted, the Cluster hook sets the same annotation when the
/// Cluster no longer needs etcd.
pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    let etcd = &observation.etcd;
    let proof = cluster_going(etcd.metadata.deletion_timestamp.is_some())?;
    if view.has_begun() && !is_confirmed(etcd) && !observation.machines.is_empty() {
        if let Some(cluster) = observation.cluster.living() {
            let message = format!(
                "the deletion would destroy the data of {} members, and Cluster {cluster} stays. To confirm it: {}",
                view.roster.members().count(),
                confirm(etcd)
            );
            return Some(block(reasons::DELETION_NOT_CONFIRMED, message));
        }
        // Both were deleted at the same time, as a foreground deletion does. The workers of the Cluster need etcd for
        // longer, and so do the hooks that Cluster API calls before the Cluster goes.
        if let ClusterLink::One(cluster) = &observation.cluster {
            let message = format!(
                "Cluster {} is being deleted; etcd goes when the Cluster hook confirms that nobody needs it any more. To have it deleted now: {}",
                cluster.name,
                confirm(etcd)
            );
            return Some(wait(reasons::DELETING, message));
        }
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

/// Whether a person, or the Cluster hook, has confirmed the deletion.
pub(super) fn is_confirmed(etcd: &EtcdCluster) -> bool {
    etcd.annotations().get(names::CONFIRM_DELETION_ANNOTATION) == Some(&etcd.name_any())
}

/// The command with which a person confirms the deletion.
pub(super) fn confirm(etcd: &EtcdCluster) -> String {
    let (name, namespace) = (etcd.name_any(), etcd.namespace().unwrap_or_default());
    let (group, annotation) = (names::ETCD_CLUSTER_GROUP, names::CONFIRM_DELETION_ANNOTATION);
    format!("kubectl annotate -n {namespace} etcdclusters.{group} {name} {annotation}={name}")
}

fn waiting_for_us(view: &View<'_>) -> Vec<String> {
    let leaving = view.observation.machines.values().filter(|machine| machine.deleting && has_hook(machine));
    leaving.map(|machine| machine.name.clone()).collect()
}
