//! Many clusters of one member or, if they are simulated, also of three, without control planes.

use crate::bring_up::PATIENCE;
use crate::records::Warning;
use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use api::names::ca_secret;
use e2e::bed::{Bed, ClusterHandle, Manifests, first_address};
use e2e::until::until;
use futures::future::try_join_all;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Where they are.
pub(super) const NAMESPACE: &str = "crowd";
/// How many of them come up side by side: real ones, and simulated ones.
const AT_ONCE: (usize, usize) = (8, 40);
/// Of so many simulated clusters, one has three members.
const OF_THREE: usize = 10;
/// What is said of a member that a slow computer has not let answer.
const TOO_LATE: &str = "no answer within";
/// Time between two looks at all of them.
pub(super) const LOOKS: Duration = Duration::from_millis(500);

pub(super) struct Crowd {
    pub(super) client: Client,
    pub(super) looks: Vec<ClusterHandle>,
    /// Warnings about members that do not count.
    pub(super) forgiven: BTreeSet<Warning>,
}

/// A member's Machine, and the address of what is behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) machine: String,
    pub(super) address: Ipv4Addr,
}

impl Crowd {
    /// Waits until all of them are ready, and well by what the last checks say.
    pub(super) async fn up(bed: &Bed, count: usize) -> Result<Self> {
        let client = bed.client();
        ClusterHandle::make_namespace(&client, NAMESPACE).await?;
        let mut crowd = Self { client, looks: Vec::new(), forgiven: BTreeSet::new() };
        crowd.grows(bed, count).await?;
        Ok(crowd)
    }

    /// The same of clusters that come: until there are so many.
    pub(super) async fn grows(&mut self, bed: &Bed, count: usize) -> Result<()> {
        let (client, begun) = (self.client.clone(), Instant::now());
        let simulated = bed.frozen().is_some();
        let at_once = if simulated { AT_ONCE.1 } else { AT_ONCE.0 };
        while self.looks.len() < count {
            let batch = self.looks.len()..count.min(self.looks.len() + at_once);
            let replicas = |number: usize| if simulated && number.is_multiple_of(OF_THREE) { 3 } else { 1 };
            let manifests = batch.map(|number| cluster(number, replicas(number))).collect::<Result<Vec<_>>>()?;
            try_join_all(manifests.iter().map(|manifests| manifests.apply(&client))).await?;
            self.looks.extend(manifests.iter().map(|manifests| ClusterHandle::new(&client, manifests)));
            self.until_all_is_well().await?;
        }
        println!("  {count} clusters are well after {:.0} s", begun.elapsed().as_secs_f32());
        Ok(())
    }

    /// Deletes them all, and waits until nothing of them is left.
    pub(super) async fn goes(&mut self) -> Result<()> {
        let looks = std::mem::take(&mut self.looks);
        try_join_all(looks.iter().map(|handle| handle.delete("Cluster", &handle.cluster))).await?;
        let Some(handle) = looks.first() else { return Ok(()) };
        until("no cluster is left", PATIENCE, async || {
            for kind in ["Cluster", "EtcdCluster", "Machine", "LocalCluster", "LocalMachine"] {
                let left = handle.names(kind, "").await?;
                ensure!(left.is_empty(), "of {kind} there are {left:?}");
            }
            // What comes again under the same names must not meet what is about to go.
            let (templates, secrets) = (handle.names("LocalMachineTemplate", "").await?, handle.secret_names().await?);
            let is_left = |handle: &&ClusterHandle| {
                templates.contains(&handle.etcd) || secrets.contains(&ca_secret(&handle.cluster))
            };
            let left = looks.iter().find(is_left).map(|handle| &handle.cluster);
            ensure!(left.is_none(), "of {left:?} there are {templates:?}, {secrets:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Has warnings until now not count that a simulated member did not answer in time: before the first fault, a
    /// computer may be too slow for hundreds of them. What else was said of members counts, and so does the same if it
    /// is said again.
    pub(super) async fn forgive(&mut self, bed: &Bed) -> Result<()> {
        if bed.frozen().is_some() {
            self.forgiven = super::warnings_about_members(&self.client).await?;
            self.forgiven.retain(|warning| warning.text.contains(TOO_LATE));
            println!("  too late before the first fault: {:?}", self.forgiven);
        }
        Ok(())
    }

    /// Every member, by the machines that there are.
    pub(super) async fn seats(&self) -> Result<Vec<Seat>> {
        let mut seats = Vec::new();
        for machine in self.any()?.api("LocalMachine").list(&ListParams::default()).await?.items {
            let address = first_address(&machine).with_context(|| format!("{} has no address", machine.name_any()))?;
            let address: Ipv4Addr = address.parse().with_context(|| format!("{}: {address}", machine.name_any()))?;
            seats.push(Seat { machine: machine.name_any(), address });
        }
        seats.sort();
        Ok(seats)
    }

    /// A look at any of them, for questions about the namespace.
    pub(super) fn any(&self) -> Result<&ClusterHandle> {
        self.looks.first().context("there is no cluster")
    }

    /// The EtcdClusters as they are.
    pub(super) async fn states(&self) -> Result<Vec<EtcdCluster>> {
        let api: Api<EtcdCluster> = Api::namespaced(self.client.clone(), NAMESPACE);
        let states = api.list(&ListParams::default()).await?.items;
        ensure!(states.len() == self.looks.len(), "{} EtcdClusters of {}", states.len(), self.looks.len());
        Ok(states)
    }

    /// Waits until every cluster says that its members are healthy, and is ready.
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

/// A cluster of so many members and nothing else, which are asked every second. One that is blamed stays, to be seen.
fn cluster(number: usize, replicas: i64) -> Result<Manifests> {
    let manifests = Manifests::new(NAMESPACE, &format!("c{number}"))?.replicas(replicas).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 4});
        etcd["spec"]["remediation"] = json!({"mode": "Report"});
    });
    Ok(manifests.without_control_plane())
}
