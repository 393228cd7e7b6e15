//! Member lists that etcd reports on its own machines, to check our status against.

use super::ClusterHandle;
use anyhow::{Context, Result, ensure};
use local_infrastructure::machine::{Machine, Machines};
use serde::Deserialize;

/// The wrapper of etcdctl that etcdadm installs on every machine.
const ETCDCTL: &str = "/opt/bin/etcdctl.sh";

/// A member list, as one member reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// ID of the cluster, in hexadecimal.
    pub cluster_id: String,
    /// The members, by name.
    pub members: Vec<Member>,
}

/// One entry of a member list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Name; empty until it has started.
    pub name: String,
    /// ID, in hexadecimal.
    pub id: String,
    /// It does not vote.
    pub learner: bool,
    /// URLs for its peers.
    pub peer_urls: Vec<String>,
}

impl Membership {
    /// Asks the member on `machine`. It answers only if its cluster has a quorum.
    ///
    /// # Errors
    /// When the machine does not run, or the member does not answer; the error has etcdctl's output.
    pub async fn on(machine: Machine) -> Result<Self> {
        let name = machine.spec().name.clone();
        let asked = tokio::task::spawn_blocking(move || {
            machine.exec(&[ETCDCTL, "member", "list", "--write-out=json", "--command-timeout=5s"])
        });
        let output = asked.await?.with_context(|| format!("run etcdctl on {name}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "etcdctl on {name}: {}: {}", output.status, said.trim());
        let list: List =
            serde_json::from_slice(&output.stdout).with_context(|| format!("etcdctl's answer on {name}"))?;
        let hex = |id: u64| format!("{id:x}");
        let mut members: Vec<Member> = list
            .members
            .into_iter()
            .map(|m| Member { name: m.name, id: hex(m.id), learner: m.learner, peer_urls: m.peer_urls })
            .collect();
        members.sort();
        Ok(Self { cluster_id: hex(list.header.cluster_id), members })
    }

    /// Names of the members that vote.
    #[must_use]
    pub fn voters(&self) -> Vec<&str> {
        self.members.iter().filter(|member| !member.learner).map(|member| member.name.as_str()).collect()
    }

    /// How many of its members are in a later list, unchanged.
    #[must_use]
    pub fn stayed(&self, later: &Self) -> usize {
        self.members.iter().filter(|member| later.members.contains(member)).count()
    }
}

impl ClusterHandle {
    /// The member list that all of these machines' members agree on.
    ///
    /// # Errors
    /// When a member does not answer, or its list differs from the others'; the error has both lists.
    pub async fn membership(&self, machines: &Machines, names: &[String]) -> Result<Membership> {
        let mut agreed: Option<Membership> = None;
        for name in names {
            let list = Membership::on(machines.get(&self.namespace, name)?).await?;
            if let Some(agreed) = &agreed {
                ensure!(*agreed == list, "the members disagree: {name} says {list:?}, another one {agreed:?}");
            }
            agreed = Some(list);
        }
        agreed.context("no machine to ask")
    }
}

#[derive(Deserialize)]
struct List {
    header: Header,
    members: Vec<Entry>,
}

#[derive(Deserialize)]
struct Header {
    cluster_id: u64,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "ID")]
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default, rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(default, rename = "isLearner")]
    learner: bool,
}
