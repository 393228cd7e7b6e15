//! One case: a cluster in a namespace of its own, and what our manager has done there.

use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::{Mark, Request, users};
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

pub(super) struct Case<'a> {
    bed: &'a Bed,
    /// The documents before the case changes them: all are good.
    pub(super) manifests: Manifests,
    pub(super) handle: ClusterHandle,
    since: Mark,
}

impl<'a> Case<'a> {
    /// The example with one member, in the new namespace `bad-<name>`. Nothing is applied yet.
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

    /// Waits until the EtcdCluster is not Ready for this reason, and returns the message.
    pub(super) async fn until_etcd_says(&self, reason: &str) -> Result<String> {
        self.handle.until_condition("Ready", "False", reason, PATIENCE).await
    }

    /// Waits until the Cluster reports for this reason that etcd is not handed over, and returns the message.
    pub(super) async fn until_cluster_says(&self, reason: &str) -> Result<String> {
        self.handle.until_cluster_condition("ManagedExternalEtcdReady", "False", reason, PATIENCE).await
    }

    /// What our manager has written in this namespace, without statuses and events, according to the audit log.
    pub(super) fn writes(&self) -> Result<Vec<String>> {
        let here = |request: &Request| request.namespace == self.handle.namespace && request.code < 300;
        let requests = self.bed.plane.requests_since(self.since)?.user(users::PROVIDER).writes().filter(here);
        let ours = requests.filter(|request| request.subresource.is_empty() && request.resource != "events");
        Ok(ours.iter().map(|request| format!("{} {} {}", request.verb, request.resource, request.name)).collect())
    }

    /// Checks that our manager has made nothing but Secrets: there may be certificates already.
    pub(super) async fn no_machine_was_made(&self) -> Result<()> {
        let made = |write: &String| write.starts_with("create ") && !write.starts_with("create secrets ");
        let made: Vec<String> = self.writes()?.into_iter().filter(made).collect();
        ensure!(made.is_empty(), "made in {}: {made:?}", self.handle.namespace);
        Ok(())
    }

    /// Checks that our manager has made nothing, and that there is no Machine.
    pub(super) async fn nothing_was_made(&self) -> Result<()> {
        let made: Vec<String> = self.writes()?.into_iter().filter(|write| write.starts_with("create ")).collect();
        ensure!(made.is_empty(), "made in {}: {made:?}", self.handle.namespace);
        let machines = self.handle.etcd_machines().await?;
        ensure!(machines.is_empty(), "in {}: {machines:?}", self.handle.namespace);
        Ok(())
    }

    /// Waits until the control plane is paused. It may have been made a moment ago, after what the Cluster says.
    pub(super) async fn control_plane_waits(&self) -> Result<()> {
        until("the control plane is paused until there is etcd", PATIENCE, async || {
            Ok(self.handle.control_plane_is_paused().await?.then_some(()))
        })
        .await
    }

    /// Checks that the cluster, now correct, comes up and is handed over.
    pub(super) async fn comes_up(&self) -> Result<()> {
        self.handle.until_ready(PATIENCE).await.with_context(|| self.handle.namespace.clone())?;
        released(&self.handle).await.with_context(|| self.handle.namespace.clone())
    }
}

/// Checks that the message contains each of these parts.
pub(super) fn says(message: &str, parts: &[&str]) -> Result<()> {
    for part in parts {
        ensure!(message.contains(part), "{part:?} is not in {message:?}");
    }
    Ok(())
}
