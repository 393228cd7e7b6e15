//! Plays the Cluster hook and a control plane, in clusters that have neither. It records a list of endpoints as in use
//! on the EtcdCluster before API servers have it, and removes it from the record when no API server has it any more.
//! The API servers exist only for the observer: there are no real members that they could use.

use anyhow::Result;
use api::EtcdCluster;
use api::endpoints::{EndpointList, EndpointLists, parse_list};
use api::names::ENDPOINTS_IN_USE_ANNOTATION;
use e2e::bed::{Bed, ClusterHandle, ObservedServers};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Time between two reads of the EtcdCluster.
const LOOKS: Duration = Duration::from_millis(300);
/// How long API servers take to be replaced, in milliseconds.
const ROLLS: Range<u64> = 500..6_000;

/// A control plane whose part a task plays. It ends with the story.
pub(super) struct ControlPlane(JoinHandle<()>);

impl ControlPlane {
    /// Begins without API servers.
    pub(super) fn begin(bed: &Bed, handle: &ClusterHandle, random: StdRng) -> Self {
        let observed = bed.observed_servers(&format!("{}/{}", handle.namespace, handle.cluster));
        let (present, used) = (EndpointList::new(), BTreeSet::new());
        Self(tokio::spawn(Played { handle: handle.clone(), observed, random, present, used }.run()))
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The lists that are recorded as in use.
pub(super) fn recorded(etcd: &EtcdCluster) -> EndpointLists {
    EndpointLists::parse(etcd.annotations().get(ENDPOINTS_IN_USE_ANNOTATION).map_or("", String::as_str))
}

struct Played {
    handle: ClusterHandle,
    observed: ObservedServers,
    random: StdRng,
    /// The endpoints that the control plane was given last.
    present: EndpointList,
    /// The lists that its API servers were started with.
    used: BTreeSet<EndpointList>,
}

impl Played {
    async fn run(mut self) {
        loop {
            sleep(LOOKS).await;
            // The EtcdCluster may not exist yet, or may have changed meanwhile. The next turn reads it again.
            let _ = self.turn().await;
        }
    }

    /// Takes the next step: records other endpoints and then gives them to the control plane, replaces API servers, or
    /// removes lists that no API server has from the record.
    async fn turn(&mut self) -> Result<()> {
        let etcd = self.handle.etcds().get(&self.handle.etcd).await?;
        if etcd.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let ready = etcd.status.as_ref().filter(|status| status.ready);
        let published = ready.map(|status| parse_list(&status.endpoints)).unwrap_or_default();
        if !published.is_empty() && published != self.present {
            let both = [&self.present, &published];
            self.record(&etcd, &self.used.iter().chain(both).cloned().collect()).await?;
            self.observed.uses(&published);
            self.used.insert(published.clone());
            self.present = published;
        } else if self.used.len() > 1 {
            sleep(Duration::from_millis(self.random.random_range(ROLLS))).await;
            for list in self.used.iter().filter(|list| **list != self.present) {
                self.observed.uses_no_more(list);
            }
            self.used.retain(|list| *list == self.present);
        } else {
            let used: EndpointLists = self.used.iter().cloned().collect();
            if recorded(&etcd) != used {
                self.record(&etcd, &used).await?;
            }
        }
        Ok(())
    }

    /// Writes the record as the hook does: only if the EtcdCluster has not changed since it was read.
    async fn record(&self, etcd: &EtcdCluster, lists: &EndpointLists) -> Result<()> {
        let annotations = json!({(ENDPOINTS_IN_USE_ANNOTATION): lists.to_string()});
        let patch = json!({"metadata": {"resourceVersion": etcd.resource_version(), "annotations": annotations}});
        self.handle.etcds().patch(&self.handle.etcd, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }
}
