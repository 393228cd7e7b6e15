//! What EtcdClusters have said meanwhile: every state that they went through, and every warning about them.

use anyhow::{Context, Result, bail, ensure};
use api::EtcdCluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// Kinds whose events are ours, whoever sends them.
const OURS: [&str; 2] = ["EtcdCluster", "EtcdadmConfig"];
/// Controllers of ours, which also speak about others' objects.
const CONTROLLERS: [&str; 3] = ["etcd-cluster-controller", "etcdadm-bootstrap", "cluster-hooks"];

/// Every state of a namespace's EtcdClusters since it was begun.
pub(crate) struct Record {
    states: Arc<Mutex<Vec<EtcdCluster>>>,
    watch: JoinHandle<kube::Error>,
}

impl Record {
    /// Begins with the EtcdClusters as they are.
    pub(crate) async fn of(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<EtcdCluster> = Api::namespaced(client.clone(), namespace);
        let begin = api.list(&ListParams::default()).await.context("list EtcdClusters")?;
        let version = begin.metadata.resource_version.unwrap_or_default();
        let states = Arc::new(Mutex::new(begin.items));
        let watch = tokio::spawn(follow(api, version, states.clone()));
        Ok(Self { states, watch })
    }

    /// Ends it, and gives all states.
    ///
    /// # Errors
    /// When it has missed some: the watch could not be continued.
    pub(crate) async fn stop(self) -> Result<Vec<EtcdCluster>> {
        if self.watch.is_finished() {
            bail!("states were missed: {}", self.watch.await.context("the watch")?);
        }
        self.watch.abort();
        Ok(std::mem::take(&mut *self.states.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Takes the watch up again where it ended, which it does every five minutes; gives the error that hinders it.
async fn follow(api: Api<EtcdCluster>, mut version: String, states: Arc<Mutex<Vec<EtcdCluster>>>) -> kube::Error {
    loop {
        let mut events = match api.watch(&WatchParams::default(), &version).await {
            Ok(events) => events.boxed(),
            Err(error) => return error,
        };
        loop {
            match events.try_next().await {
                Ok(Some(WatchEvent::Added(state) | WatchEvent::Modified(state))) => {
                    version = state.resource_version().unwrap_or_default();
                    states.lock().unwrap_or_else(PoisonError::into_inner).push(state);
                }
                Ok(Some(WatchEvent::Error(status))) => return kube::Error::Api(status),
                Ok(Some(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
                Ok(None) => break,
                Err(error) => return error,
            }
        }
    }
}

/// Once an EtcdCluster was Available, it never said that it is not. That it does not know is another matter.
pub(crate) fn always_available(states: &[EtcdCluster]) -> Result<()> {
    let mut available = std::collections::BTreeSet::new();
    for state in states {
        let conditions = state.status.iter().flat_map(|status| &status.conditions);
        for found in conditions.filter(|condition| condition.type_ == "Available") {
            let name = state.name_any();
            if found.status == "True" {
                available.insert(name);
            } else {
                let lost = found.status == "False" && available.contains(&name);
                ensure!(!lost, "{name} was Available, and then not: {found:?}");
            }
        }
    }
    ensure!(!available.is_empty(), "no EtcdCluster was ever Available: nothing is shown");
    Ok(())
}

/// A warning of ours. One that is told again is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// `<reason> about <kind> <name>: <note>`.
    pub(crate) text: String,
    event: String,
    /// How often it was told, if more than once.
    times: Option<i32>,
}

/// The text of every warning of ours in a namespace.
pub(crate) async fn warnings(client: &Client, namespace: &str) -> Result<Vec<String>> {
    Ok(told(client, namespace).await?.into_iter().map(|warning| warning.text).collect())
}

/// Warnings of ours in a namespace. What others say of their own objects is not counted: they warn in the best of lives
/// too, and in other words with each release. So does KubeadmControlPlane while a Machine of its comes up
/// (`ControlPlaneUnhealthy`, in `scale.go` of Cluster API 1.14).
pub(crate) async fn told(client: &Client, namespace: &str) -> Result<Vec<Warning>> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let events = events.list(&ListParams::default()).await.context("list events")?.items;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let mut found = Vec::new();
    for event in events.iter().filter(|event| event.type_.as_deref() == Some("Warning")) {
        let about = event.regarding.clone().unwrap_or_default();
        let (kind, from) = (text(&about.kind), text(&event.reporting_controller));
        if OURS.contains(&kind.as_str()) || CONTROLLERS.contains(&from.as_str()) {
            let text = format!("{} about {kind} {}: {}", text(&event.reason), text(&about.name), text(&event.note));
            let times = event.series.as_ref().map(|series| series.count);
            found.push(Warning { text, event: event.name_any(), times });
        }
    }
    Ok(found)
}
