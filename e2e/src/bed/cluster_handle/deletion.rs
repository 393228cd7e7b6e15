//! Deletion of the EtcdCluster alone, which requires a confirmation.

use super::ClusterHandle;
use crate::until::until;
use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

impl ClusterHandle {
    /// Annotates this EtcdCluster with the confirmation that the EtcdCluster `name` may be deleted. The confirmation
    /// counts only if `name` is its own name.
    ///
    /// # Errors
    /// When there is no such EtcdCluster.
    pub async fn confirm_deletion(&self, name: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {api::names::CONFIRM_DELETION_ANNOTATION: name}}});
        let patch = Patch::Merge(&patch);
        let patched = self.api("EtcdCluster").patch(&self.etcd, &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("confirm the deletion of {name}"))?;
        Ok(())
    }

    /// Confirms the deletion of the EtcdCluster, and deletes it.
    ///
    /// # Errors
    /// When there is no EtcdCluster, or the deletion is refused.
    pub async fn delete_etcd(&self) -> Result<()> {
        self.confirm_deletion(&self.etcd).await?;
        self.delete("EtcdCluster", &self.etcd).await
    }
    /// Waits until no EtcdCluster is left in the namespace, and no Machine of this one.
    ///
    /// # Errors
    /// When something is left after `timeout`.
    pub async fn until_etcd_is_gone(&self, timeout: Duration) -> Result<()> {
        until("the EtcdCluster and its Machines are gone", timeout, async || {
            let left = [self.names("EtcdCluster", "").await?, self.etcd_machines().await?].concat();
            ensure!(left.is_empty(), "left are {left:?}");
            Ok(Some(()))
        })
        .await
    }
}
