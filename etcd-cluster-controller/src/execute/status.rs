//! Writing the status, and the events that go with it.

use crate::CONTROLLER;
use crate::context::Context;
use crate::status::differs;
use crate::status::transitions::{Transition, transitions};
use api::EtcdCluster;
use api::etcd_cluster::EtcdClusterStatus;
use controller_support::{Result, apply};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use std::sync::Arc;

/// Writes the status if it differs, and sends the events about the changes.
///
/// Guarantees: the status is written only over the version that it was computed from, or over what this reconcile
/// itself has made of that version.
///
/// # Errors
/// [`NotReady`](controller_support::Error::NotReady) if another writer has changed the object: everything is decided
/// again.
pub(crate) async fn write_status(context: &Context, etcd: &Arc<EtcdCluster>, after: EtcdClusterStatus) -> Result<()> {
    if !differs(etcd.status.as_ref(), &after) {
        return Ok(());
    }
    let api: Api<EtcdCluster> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    let newest = context.written.as_written(etcd.clone());
    if !apply::write_remembered_status(&api, CONTROLLER, &context.written, newest.as_ref(), &after).await? {
        return Ok(());
    }
    let about = etcd.object_ref(&());
    for Transition { warning, reason, note } in transitions(&etcd.status.clone().unwrap_or_default(), &after) {
        if warning {
            context.events.warning(&about, "Reconcile", reason, note).await;
        } else {
            context.events.normal(&about, "Reconcile", reason, note).await;
        }
    }
    Ok(())
}
