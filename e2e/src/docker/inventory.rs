//! What a daemon has, and checks that nothing is left of what scenarios have made.

use super::DockerBed;
use super::daemon::Daemon;
use crate::bed::ClusterHandle;
use crate::until::until;
use anyhow::{Context, Result, bail};
use api::names;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Kinds of which no object may be left when the Clusters are gone.
pub const KINDS: [&str; 12] = [
    "Cluster",
    "EtcdCluster",
    "EtcdadmConfig",
    "KubeadmControlPlane",
    "KubeadmConfig",
    "MachineDeployment",
    "MachineSet",
    "Machine",
    "DevCluster",
    "DevMachine",
    "DockerCluster",
    "DockerMachine",
];

/// What a daemon has, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Containers, running or not.
    pub containers: BTreeSet<String>,
    /// Networks.
    pub networks: BTreeSet<String>,
    /// Volumes.
    pub volumes: BTreeSet<String>,
}

impl Inventory {
    /// What is here and not in `other`, each with its kind.
    fn beyond(&self, other: &Self) -> Vec<String> {
        let list = |kind: &str, ours: &BTreeSet<String>, theirs: &BTreeSet<String>| -> Vec<String> {
            ours.difference(theirs).map(|name| format!("{kind} {name}")).collect()
        };
        [
            list("container", &self.containers, &other.containers),
            list("network", &self.networks, &other.networks),
            list("volume", &self.volumes, &other.volumes),
        ]
        .concat()
    }
}

impl Daemon {
    /// What the daemon has at the moment.
    pub(super) async fn inventory(&self) -> Result<Inventory> {
        let list = async |arguments: &[&str]| {
            let names = self.docker(arguments).await?;
            anyhow::Ok(names.lines().map(str::to_owned).collect::<BTreeSet<String>>())
        };
        Ok(Inventory {
            containers: list(&["ps", "--all", "--format", "{{.Names}}"]).await?,
            networks: list(&["network", "ls", "--format", "{{.Name}}"]).await?,
            volumes: list(&["volume", "ls", "--format", "{{.Name}}"]).await?,
        })
    }
}

impl DockerBed {
    /// What the daemon has now and did not have before the first scenario: containers, networks, volumes.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub async fn traces(&self) -> Result<Vec<String>> {
        Ok(self.daemon.inventory().await?.beyond(&self.empty))
    }

    /// Deletes everything that a scenario has left, and waits until it is gone. First restores every process. Then
    /// deletes the Clusters, as their users would, and lifts the pauses of users.
    ///
    /// # Errors
    /// When something stays; the error names it.
    pub async fn clear(&mut self, timeout: Duration) -> Result<()> {
        self.restore().await?;
        let anywhere = ClusterHandle::anywhere(&self.client());
        for kind in ["Cluster", "EtcdCluster"] {
            for object in anywhere.everywhere(kind).list(&ListParams::default()).await?.items {
                let handle = anywhere.clone().within(object.namespace()).with_etcd(&object.name_any());
                let deleted = match kind {
                    "EtcdCluster" => handle.delete_etcd().await,
                    _ => handle.delete(kind, &object.name_any()).await,
                };
                match deleted {
                    Err(error) if !format!("{error:#}").contains("NotFound") => return Err(error),
                    _ => {}
                }
            }
        }
        lift_pauses(&anywhere).await?;
        until("everything of this scenario can be deleted", timeout, async || {
            let mut left = Vec::new();
            for kind in KINDS {
                let list = anywhere.everywhere(kind).list(&ListParams::default()).await?;
                left.extend(list.items.iter().map(|object| format!("{kind} {}", object.name_any())));
            }
            left.extend(self.traces().await?);
            if left.is_empty() { Ok(Some(())) } else { bail!("left are {}", left.join(", ")) }
        })
        .await
    }

    /// Removes by force what is left in the daemon, and returns what it was.
    ///
    /// # Errors
    /// When the daemon does not answer, or refuses.
    pub async fn remove_traces(&self) -> Result<Vec<String>> {
        let left = self.traces().await?;
        for trace in &left {
            let (kind, name) = trace.split_once(' ').context("a kind and a name")?;
            match kind {
                "container" => self.daemon.docker(&["rm", "--force", "--volumes", name]).await?,
                kind => self.daemon.docker(&[kind, "rm", name]).await?,
            };
        }
        Ok(left)
    }
}

/// Lifts all pauses: a paused control plane is never deleted.
async fn lift_pauses(anywhere: &ClusterHandle) -> Result<()> {
    let annotations = json!({names::PAUSED_ANNOTATION: null});
    for kind in ["Cluster", "KubeadmControlPlane"] {
        for object in anywhere.everywhere(kind).list(&ListParams::default()).await?.items {
            let mut patch = json!({"metadata": {"annotations": annotations}});
            if kind == "Cluster" {
                patch["spec"] = json!({"paused": null});
            }
            let handle = anywhere.clone().within(object.namespace());
            let answer =
                handle.api(kind).patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
            match answer {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                answer => _ = answer.with_context(|| format!("lift the pause of {kind} {}", object.name_any()))?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_no_trace() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
        let before = Inventory { networks: set(&["kind"]), ..Inventory::default() };
        let now = Inventory { containers: set(&["a-lb"]), networks: set(&["kind"]), volumes: set(&["v"]) };
        assert_eq!(now.beyond(&before), ["container a-lb", "volume v"]);
        assert!(before.beyond(&now).is_empty());
    }
}
