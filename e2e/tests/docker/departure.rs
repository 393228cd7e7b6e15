//! How a Cluster is deleted: in which order, and what it reports meanwhile.

use crate::clusters::{GONE, granted};
use anyhow::{Context, Result, ensure};
use e2e::bed::ClusterHandle;
use e2e::plane::{Requests, users};
use futures::{StreamExt, stream};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::Value;
use std::pin::pin;
use std::time::Duration;

/// The annotation that triggers a reconcile of the control plane.
const GONE_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/etcd-gone";
/// How long a control plane and its machines may take to be deleted after etcd.
const SOON: Duration = Duration::from_secs(40);

/// Where people look while they wait: the Cluster's condition about its etcd, and the condition of the EtcdCluster.
const SAYS: [(&str, &str); 2] = [("Cluster", "ManagedExternalEtcdReady"), ("EtcdCluster", "Deleting")];

/// Waits until the Cluster is gone, and returns what these conditions said during the deletion: each text once.
pub(crate) async fn told(handle: &ClusterHandle) -> Result<Vec<String>> {
    let watch = |kind: &str, name: &str| {
        let one = Config::default().fields(&format!("metadata.name={name}"));
        watcher(handle.api(kind), one).default_backoff()
    };
    let clusters = watch("Cluster", &handle.cluster).map(|event| (0, event));
    let etcds = watch("EtcdCluster", &handle.etcd).map(|event| (1, event));
    let mut events = pin!(stream::select(clusters, etcds));
    let mut texts = Vec::new();
    let all = async {
        let mut seen = false;
        while let Some((which, event)) = events.next().await {
            match event {
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    seen |= which == 0;
                    let line = said(&object, SAYS[which]);
                    let deleting = object.metadata.deletion_timestamp.is_some();
                    texts.extend(line.filter(|line| deleting && !texts.contains(line)));
                }
                Ok(Event::Delete(_)) if which == 0 => return Ok(()),
                Ok(Event::InitDone) if which == 0 && !seen => return Ok(()),
                // The watcher asks again after an error.
                Ok(_) | Err(_) => {}
            }
        }
        anyhow::bail!("the watch has ended")
    };
    let ended = tokio::time::timeout(GONE, all).await;
    ended.with_context(|| format!("{} is still there; it said {texts:?}", handle.cluster))??;
    Ok(texts)
}

fn said(object: &DynamicObject, (kind, type_): (&str, &str)) -> Option<String> {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array)?;
    let condition = conditions.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    Some(format!("{kind} {type_}={} {}: {}", text("status"), text("reason"), text("message")))
}

/// According to the API server's audit log, we gave the control plane's controller a reason to reconcile when the last
/// Machine of etcd was gone, and the control plane was gone soon after. By then, its API server no longer answers, so
/// the controller is in its error back-off, of up to two minutes.
pub(crate) fn the_control_plane_was_woken(requests: &Requests, handle: &ClusterHandle) -> Result<()> {
    let machines = granted(requests, handle, users::CAPI_CORE).resource("machines").writes();
    let of_etcd = machines.iter().filter(|request| request.name.starts_with(&format!("{}-", handle.etcd)));
    let etcd_gone = of_etcd.map(|request| request.received).max().context("no Machine of etcd has gone")?;
    let ours = granted(requests, handle, users::PROVIDER).verb("patch").resource("kubeadmcontrolplanes");
    let woken = ours.iter().find(|request| request.body["metadata"]["annotations"][GONE_ANNOTATION] == "true");
    let woken = woken.context("we have not woken the control plane")?.received;
    ensure!(woken >= etcd_gone, "woken at {woken}, and the last Machine of etcd was there until {etcd_gone}");
    let theirs = granted(requests, handle, users::CAPI_CONTROL_PLANE).resource("kubeadmcontrolplanes").writes();
    let gone = theirs.iter().map(|request| request.received).max().context("the control plane has not gone")?;
    let took = gone.duration_since(etcd_gone);
    println!("  the control plane has gone {:.1} s after etcd", took.as_secs_f32());
    ensure!(took.unsigned_abs() < SOON, "the control plane was gone at {gone}, and etcd at {etcd_gone}");
    Ok(())
}

/// According to the API server's audit log, etcd was deleted after the last worker Machine was gone, and the control
/// plane after the last Machine of etcd was gone.
pub(crate) fn etcd_went_between(requests: &Requests, handle: &ClusterHandle) -> Result<()> {
    let etcd = granted(requests, handle, users::PROVIDER).verb("delete").resource("etcdclusters");
    let etcd = etcd.iter().next().with_context(|| format!("we have not deleted EtcdCluster {}", handle.etcd))?.received;
    let core = granted(requests, handle, users::CAPI_CORE);
    let control_plane = core.verb("delete").resource("kubeadmcontrolplanes");
    let control_plane = control_plane.iter().next().context("nobody has deleted the control plane")?.received;
    // The last write to a Machine is the removal of its finalizer.
    for machine in core.resource("machines").writes().iter() {
        let of = |owner: &str| machine.name.starts_with(&format!("{owner}-"));
        if of(&handle.control_plane) {
            continue;
        }
        let (next, what) = if of(&handle.etcd) { (control_plane, "the control plane") } else { (etcd, "etcd") };
        ensure!(
            machine.received < next,
            "{what} was deleted at {next}, and Machine {} was still there at {}",
            machine.name,
            machine.received
        );
    }
    Ok(())
}
