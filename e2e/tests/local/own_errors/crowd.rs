//! Many clusters of one member, without control planes.

use crate::bring_up::PATIENCE;
use anyhow::{Result, ensure};
use api::EtcdCluster;
use e2e::bed::{Bed, Look, Manifests};
use e2e::until::until;
use futures::future::try_join_all;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// Where they are.
pub(super) const NAMESPACE: &str = "crowd";
/// How many of them come up side by side.
const AT_ONCE: usize = 8;

pub(super) struct Crowd {
    pub(super) client: Client,
    pub(super) looks: Vec<Look>,
}

impl Crowd {
    /// Waits until all of them are ready, and well by what the last checks say.
    pub(super) async fn up(bed: &Bed, count: usize) -> Result<Self> {
        let client = bed.client();
        Look::make_namespace(&client, NAMESPACE).await?;
        let mut looks = Vec::new();
        while looks.len() < count {
            let batch = looks.len()..count.min(looks.len() + AT_ONCE);
            let client = &client;
            let up = batch.map(async |number| {
                let manifests = member(number)?;
                manifests.apply(client).await?;
                let look = Look::at(client, &manifests);
                look.until_ready(PATIENCE).await?;
                anyhow::Ok(look)
            });
            looks.extend(try_join_all(up).await?);
        }
        let crowd = Self { client, looks };
        crowd.until_all_is_well().await?;
        Ok(crowd)
    }

    /// The EtcdClusters as they are.
    pub(super) async fn states(&self) -> Result<Vec<EtcdCluster>> {
        let api: Api<EtcdCluster> = Api::namespaced(self.client.clone(), NAMESPACE);
        let states = api.list(&ListParams::default()).await?.items;
        ensure!(states.len() == self.looks.len(), "{} EtcdClusters of {}", states.len(), self.looks.len());
        Ok(states)
    }

    /// Waits until every cluster says that its member is healthy, and is ready.
    pub(super) async fn until_all_is_well(&self) -> Result<()> {
        until("every cluster is well", PATIENCE * 2, async || {
            for etcd in self.states().await? {
                let (name, status) = (etcd.name_any(), etcd.status.unwrap_or_default());
                let healthy = status.conditions.iter().any(|c| c.type_ == "MembersHealthy" && c.status == "True");
                ensure!(status.ready && healthy, "{name}: {:?}", status.conditions);
            }
            Ok(Some(()))
        })
        .await
    }
}

/// A cluster of one member and nothing else, which is asked every second.
fn member(number: usize) -> Result<Manifests> {
    let manifests = Manifests::new(NAMESPACE, &format!("c{number}"))?.replicas(1).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 4});
    });
    Ok(manifests.without_control_plane())
}
