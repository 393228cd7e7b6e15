//! How a Cluster goes: in which order, and what is said meanwhile.

use crate::clusters::{GONE, granted};
use anyhow::{Context, Result, ensure};
use e2e::bed::Look;
use e2e::plane::{Requests, users};
use futures::{StreamExt, stream};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::Value;
use std::pin::pin;

/// Where people look while they wait: the condition of the Cluster about its etcd, and that of the EtcdCluster.
const SAYS: [(&str, &str); 2] = [("Cluster", "ManagedExternalEtcdReady"), ("EtcdCluster", "Deleting")];

/// Waits until the Cluster is gone, and gives what was said of its etcd from the beginning to the end of the deletion, each
/// time that it changed.
pub(crate) async fn told(look: &Look) -> Result<Vec<String>> {
    let watch = |kind: &str, name: &str| {
        let one = Config::default().fields(&format!("metadata.name={name}"));
        watcher(look.api(kind), one).default_backoff()
    };
    let clusters = watch("Cluster", &look.cluster).map(|event| (0, event));
    let etcds = watch("EtcdCluster", &look.etcd).map(|event| (1, event));
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
                // An answer that is late is asked for again.
                Ok(_) | Err(_) => {}
            }
        }
        anyhow::bail!("the watch has ended")
    };
    let ended = tokio::time::timeout(GONE, all).await;
    ended.with_context(|| format!("{} is still there; it said {texts:?}", look.cluster))??;
    Ok(texts)
}

fn said(object: &DynamicObject, (kind, type_): (&str, &str)) -> Option<String> {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array)?;
    let condition = conditions.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    Some(format!("{kind} {type_}={} {}: {}", text("status"), text("reason"), text("message")))
}

/// By the API server's own account: etcd was deleted after the last worker Machine, and the control plane after the last
/// Machine of etcd.
pub(crate) fn etcd_went_between(requests: &Requests, look: &Look) -> Result<()> {
    let etcd = granted(requests, look, users::PROVIDER).verb("delete").resource("etcdclusters");
    let etcd = etcd.iter().next().with_context(|| format!("we have not deleted EtcdCluster {}", look.etcd))?.received;
    let core = granted(requests, look, users::CAPI_CORE);
    let control_plane = core.verb("delete").resource("kubeadmcontrolplanes");
    let control_plane = control_plane.iter().next().context("nobody has deleted the control plane")?.received;
    // The last thing that happens to a Machine is that its finalizer is taken away.
    for machine in core.resource("machines").writes().iter() {
        let of = |owner: &str| machine.name.starts_with(&format!("{owner}-"));
        if of(&look.control_plane) {
            continue;
        }
        let (next, what) = if of(&look.etcd) { (control_plane, "the control plane") } else { (etcd, "etcd") };
        ensure!(
            machine.received < next,
            "{what} was deleted at {next}, and Machine {} was still there at {}",
            machine.name,
            machine.received
        );
    }
    Ok(())
}
