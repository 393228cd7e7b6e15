//! Many clusters of one member, and some of three, without control planes.

use crate::account::{deleted, made};
use crate::bring_up::PATIENCE;
use crate::records::Warning;
use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use api::names::ca_secret;
use e2e::bed::{Bed, ClusterHandle, Manifests, first_address};
use e2e::plane::Mark;
use e2e::until::until;
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The namespace of all these clusters.
pub(super) const NAMESPACE: &str = "crowd";
/// How many clusters come up side by side: real ones, and simulated ones.
const AT_ONCE: (usize, usize) = (8, 40);
/// One of so many clusters, also the first one, has three members. The only member of a cluster is never replaced.
const OF_THREE: usize = 10;
/// What the manager reports of a simulated member that could not answer in time on a slow computer, and of a real
/// learner whose etcd could not start in time.
const TOO_LATE: &str = "no answer within";
const NOT_STARTED: &str = "etcd does not listen";
/// Time between two reads of all EtcdClusters.
pub(super) const LOOKS: Duration = Duration::from_millis(500);

pub(super) struct Crowd {
    pub(super) client: Client,
    pub(super) looks: Vec<ClusterHandle>,
    /// Warnings about members that do not count.
    pub(super) forgiven: BTreeSet<Warning>,
    /// The seats since members that are blamed are replaced, and the place in the audit log.
    at_stake: Option<(Vec<Seat>, Mark)>,
}

/// A member's Machine, and the address of the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    pub(super) machine: String,
    pub(super) address: Ipv4Addr,
}

impl Crowd {
    /// Makes so many clusters, and waits until all are ready and their last health checks succeeded.
    pub(super) async fn up(bed: &Bed, count: usize) -> Result<Self> {
        let client = bed.client();
        ClusterHandle::make_namespace(&client, NAMESPACE).await?;
        let mut crowd = Self { client, looks: Vec::new(), forgiven: BTreeSet::new(), at_stake: None };
        crowd.grows(bed, count).await?;
        Ok(crowd)
    }

    /// Makes more clusters until there are so many, and waits in the same way.
    pub(super) async fn grows(&mut self, bed: &Bed, count: usize) -> Result<()> {
        let (client, begun) = (self.client.clone(), Instant::now());
        let simulated = bed.frozen().is_some();
        let at_once = if simulated { AT_ONCE.1 } else { AT_ONCE.0 };
        while self.looks.len() < count {
            let batch = self.looks.len()..count.min(self.looks.len() + at_once);
            let replicas = |number: usize| if number.is_multiple_of(OF_THREE) { 3 } else { 1 };
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
            // New clusters of the same names must not meet objects that are about to go.
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

    /// From now on, a member that is blamed is replaced, as is the default. Until now, a computer that is too slow for
    /// all members at once would have had some of them replaced.
    pub(super) async fn is_at_stake(&mut self, bed: &Bed) -> Result<()> {
        self.at_stake = Some((self.seats().await?, bed.plane.mark()));
        let default = Patch::Merge(json!({"spec": {"remediation": null}}));
        stream::iter(&self.looks)
            .map(|handle| {
                let etcds = handle.etcds();
                let default = &default;
                async move { etcds.patch(&handle.etcd, &PatchParams::default(), default).await }
            })
            .buffer_unordered(super::AT_ONCE)
            .try_collect::<Vec<_>>()
            .await
            .map(drop)
            .context("have members replaced")
    }

    /// Checks that no Machine was made or deleted since then, and that every member is where it was.
    pub(super) async fn nobody_is_replaced(&self, bed: &Bed) -> Result<()> {
        let (before, mark) = self.at_stake.as_ref().context("no member would be replaced")?;
        let (handle, now) = (self.first()?, self.seats().await?);
        deleted(bed, handle, *mark, &[])?;
        made(bed, handle, *mark, 0)?;
        ensure!(now == *before, "the machines were {before:?}, and are {now:?}");
        Ok(())
    }

    /// From now on, ignores the warnings so far that a member was not there in time: before the first fault, a computer
    /// may be too slow for so many members. Other warnings about members count, and so does a repetition of an ignored
    /// one.
    pub(super) async fn forgive(&mut self, bed: &Bed) -> Result<()> {
        let words = if bed.frozen().is_some() { TOO_LATE } else { NOT_STARTED };
        self.forgiven = super::warnings_about_members(&self.client).await?;
        self.forgiven.retain(|warning| warning.text.contains(words));
        println!("  too late before the first fault: {:?}", self.forgiven);
        Ok(())
    }

    /// The seat of every member, from the LocalMachines that exist.
    pub(super) async fn seats(&self) -> Result<Vec<Seat>> {
        let mut seats = Vec::new();
        for machine in self.first()?.api("LocalMachine").list(&ListParams::default()).await?.items {
            let address = first_address(&machine).with_context(|| format!("{} has no address", machine.name_any()))?;
            let address: Ipv4Addr = address.parse().with_context(|| format!("{}: {address}", machine.name_any()))?;
            seats.push(Seat { machine: machine.name_any(), address });
        }
        seats.sort();
        Ok(seats)
    }

    /// The handle of the first cluster, which has three members. Also for questions about the namespace.
    pub(super) fn first(&self) -> Result<&ClusterHandle> {
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
            // Every read returns hundreds of EtcdClusters, so there is a pause between two of them.
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

/// A cluster of so many members without a control plane. Members are checked every second. A member that is blamed is
/// not replaced until [`Crowd::is_at_stake`].
fn cluster(number: usize, replicas: i64) -> Result<Manifests> {
    let manifests = Manifests::new(NAMESPACE, &format!("c{number}"))?.replicas(replicas).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 4});
        etcd["spec"]["remediation"] = json!({"mode": "Report"});
    });
    Ok(manifests.without_control_plane())
}
