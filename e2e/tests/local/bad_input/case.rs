//! One case: a cluster in a namespace of its own, and what we have done there.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::{Mark, Request, users};
use kube::api::{Patch, PatchParams};
use serde_json::Value;

pub(super) struct Case<'a> {
    bed: &'a Bed,
    /// The documents, still good.
    pub(super) manifests: Manifests,
    pub(super) handle: ClusterHandle,
    since: Mark,
}

impl<'a> Case<'a> {
    /// The example with one member, in namespace `bad-<name>`, where nothing is yet.
    pub(super) async fn new(bed: &'a Bed, name: &str) -> Result<Self> {
        let namespace = format!("bad-{name}");
        ClusterHandle::make_namespace(&bed.client(), &namespace).await?;
        let manifests = Manifests::new(&namespace, "demo")?.replicas(1);
        let handle = ClusterHandle::new(&bed.client(), &manifests);
        Ok(Self { bed, manifests, handle, since: bed.plane.mark() })
    }

    /// Applies the documents, with `change` in the first one of a kind.
    pub(super) async fn apply(&self, kind: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.apply_only(|_| true, kind, change).await
    }

    /// The same for some of the documents.
    pub(super) async fn apply_only(
        &self,
        wanted: impl Fn(&Value) -> bool,
        kind: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<()> {
        let manifests = self.manifests.clone().with(kind, change).without(|document| !wanted(document));
        manifests.apply(&self.bed.client()).await
    }

    /// Changes an object.
    pub(super) async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        let patched = self.handle.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patch {kind} {name}"))?;
        Ok(())
    }

    /// Waits until the EtcdCluster is not ready for this reason, and gives the message.
    pub(super) async fn until_etcd_says(&self, reason: &str) -> Result<String> {
        self.handle.until_condition("Ready", "False", reason, PATIENCE).await
    }

    /// Waits until the Cluster says that etcd is not handed over for this reason, and gives the message.
    pub(super) async fn until_cluster_says(&self, reason: &str) -> Result<String> {
        self.handle.until_cluster_condition("ManagedExternalEtcdReady", "False", reason, PATIENCE).await
    }

    /// By the API server's own account: what we have written here, but for status and events.
    pub(super) fn writes(&self) -> Result<Vec<String>> {
        let here = |request: &Request| request.namespace == self.handle.namespace && request.code < 300;
        let requests = self.bed.plane.requests_since(self.since)?.user(users::PROVIDER).writes().filter(here);
        let ours = requests.filter(|request| request.subresource.is_empty() && request.resource != "events");
        Ok(ours.iter().map(|request| format!("{} {} {}", request.verb, request.resource, request.name)).collect())
    }

    /// The certificates may be there, and nothing else.
    pub(super) async fn no_machine_was_made(&self) -> Result<()> {
        let made = |write: &String| write.starts_with("create ") && !write.starts_with("create secrets ");
        let made: Vec<String> = self.writes()?.into_iter().filter(made).collect();
        ensure!(made.is_empty(), "made in {}: {made:?}", self.handle.namespace);
        Ok(())
    }

    /// Nothing was made, and no Machine is there.
    pub(super) async fn nothing_was_made(&self) -> Result<()> {
        let made: Vec<String> = self.writes()?.into_iter().filter(|write| write.starts_with("create ")).collect();
        ensure!(made.is_empty(), "made in {}: {made:?}", self.handle.namespace);
        let machines = self.handle.etcd_machines().await?;
        ensure!(machines.is_empty(), "in {}: {machines:?}", self.handle.namespace);
        Ok(())
    }

    /// All is right now: the cluster comes up and is handed over.
    pub(super) async fn comes_up(&self) -> Result<()> {
        self.handle.until_ready(PATIENCE).await.with_context(|| self.handle.namespace.clone())?;
        released(&self.handle).await.with_context(|| self.handle.namespace.clone())
    }
}

/// The text has each of these in it.
pub(super) fn says(message: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(message.contains(part), "{part:?} is not in {message:?}");
    }
    Ok(())
}
