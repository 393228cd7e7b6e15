//! What EtcdClusters have reported in a scenario: every state that they went through, and every warning about them.

use anyhow::{Context, Result, bail, ensure};
use api::EtcdCluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// Kinds whose events count as ours, no matter which controller sends them.
const OURS: [&str; 2] = ["EtcdCluster", "EtcdadmConfig"];
/// Our controllers, which also send events about objects of other kinds.
const CONTROLLERS: [&str; 3] = ["etcd-cluster-controller", "etcdadm-bootstrap", "cluster-hooks"];

/// Every state of a namespace's EtcdClusters since the record began.
pub(crate) struct Record {
    states: Arc<Mutex<Vec<EtcdCluster>>>,
    watch: JoinHandle<kube::Error>,
}

impl Record {
    /// Begins a record with the EtcdClusters as they are.
    pub(crate) async fn of(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<EtcdCluster> = Api::namespaced(client.clone(), namespace);
        let begin = api.list(&ListParams::default()).await.context("list EtcdClusters")?;
        let version = begin.metadata.resource_version.unwrap_or_default();
        let states = Arc::new(Mutex::new(begin.items));
        let watch = tokio::spawn(follow(api, version, states.clone()));
        Ok(Self { states, watch })
    }

    /// Ends the record, and returns all states.
    ///
    /// # Errors
    /// When states were missed, because the watch could not be resumed.
    pub(crate) async fn stop(self) -> Result<Vec<EtcdCluster>> {
        if self.watch.is_finished() {
            bail!("states were missed: {}", self.watch.await.context("the watch")?);
        }
        self.watch.abort();
        Ok(std::mem::take(&mut *self.states.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Resumes the watch when it ends, which happens every five minutes. Returns the error that prevents this.
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

/// Checks that an EtcdCluster never said that it is not Available after it once was. It may say that it does not
/// know.
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

/// A warning of ours. When it is repeated, it counts as another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Warning {
    /// `<reason> about <kind> <name>: <note>`.
    pub(crate) text: String,
    event: String,
    /// How often the event has happened, if more than once.
    times: Option<i32>,
}

/// The texts of all our warnings in a namespace.
pub(crate) async fn warnings(client: &Client, namespace: &str) -> Result<Vec<String>> {
    Ok(told(client, namespace).await?.into_iter().map(|warning| warning.text).collect())
}

/// Our warnings in a namespace. Warnings of other controllers about their own objects do not count: those controllers
/// warn even when nothing is wrong, and in other words with each release. For example, KubeadmControlPlane warns
/// while one of its Machines comes up (`ControlPlaneUnhealthy`, in `scale.go` of Cluster API 1.14).
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
