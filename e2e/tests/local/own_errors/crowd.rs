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
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Where they are.
pub(super) const NAMESPACE: &str = "crowd";
/// How many of them come up side by side: real ones, and simulated ones.
const AT_ONCE: (usize, usize) = (8, 40);

/// Time between two looks at all of them.
const LOOKS: Duration = Duration::from_millis(500);

pub(super) struct Crowd {
    pub(super) client: Client,
    pub(super) looks: Vec<Look>,
    /// Warnings about members that do not count.
    pub(super) warnings: BTreeSet<String>,
}

impl Crowd {
    /// Waits until all of them are ready, and well by what the last checks say.
    pub(super) async fn up(bed: &Bed, count: usize) -> Result<Self> {
        let client = bed.client();
        Look::make_namespace(&client, NAMESPACE).await?;
        let (mut crowd, begun) =
            (Self { client: client.clone(), looks: Vec::new(), warnings: BTreeSet::new() }, Instant::now());
        let at_once = if bed.frozen().is_some() { AT_ONCE.1 } else { AT_ONCE.0 };
        while crowd.looks.len() < count {
            let batch = crowd.looks.len()..count.min(crowd.looks.len() + at_once);
            let manifests = batch.map(member).collect::<Result<Vec<_>>>()?;
            try_join_all(manifests.iter().map(|manifests| manifests.apply(&client))).await?;
            crowd.looks.extend(manifests.iter().map(|manifests| Look::at(&client, manifests)));
            crowd.until_all_is_well().await?;
        }
        println!("  {count} clusters are well after {:.0} s", begun.elapsed().as_secs_f32());
        Ok(crowd)
    }

    /// Has warnings about simulated members until now not count. Before the first fault, a computer may be too slow for hundreds
    /// of members to answer in time.
    pub(super) async fn forgive(&mut self, bed: &Bed) -> Result<()> {
        if bed.frozen().is_some() {
            self.warnings = super::warnings_about_members(&self.client).await?;
            println!("  warnings about members before the first fault: {:?}", self.warnings);
        }
        Ok(())
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
            // Hundreds of them in each look: not more often.
            tokio::time::sleep(LOOKS).await;
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
