//! Whose machine fails.

use anyhow::Result;
use api::etcd_cluster::MemberRole;
use e2e::bed::{Bed, ClusterHandle};
use kube::ResourceExt;
use kube::api::ListParams;

/// The machine with a small disk, where there is one.
pub(super) const SMALL: &str = "demo-etcd-2";

/// A part that a machine has in a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// Whoever leads.
    Leader,
    /// A voter from before that does not lead, and is to stay for the moment.
    Follower,
    /// One that was not there before.
    Newcomer,
    /// One that is on its way out, and not the one whose turn it is.
    Leaver,
    /// The voter that has a small disk, whatever else it does.
    Small,
}

/// A machine, and where its member is asked if it is published.
pub(super) struct Found {
    pub(super) machine: String,
    pub(super) url: Option<String>,
}

impl Victim {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Newcomer => "newcomer",
            Self::Leaver => "leaver",
            Self::Small => "small",
        }
    }
}

/// The machine that has this part at the moment, if one has. It is none of the `dead`.
pub(super) async fn find(
    bed: &Bed,
    handle: &ClusterHandle,
    old: &[String],
    victim: Victim,
    dead: &[Found],
) -> Result<Option<Found>> {
    let status = handle.status().await?;
    let ours = ListParams::default().labels(&format!("{}={}", api::names::ETCD_CLUSTER_LABEL, handle.etcd));
    for machine in handle.api("Machine").list(&ours).await?.items {
        let (name, goes) = (machine.name_any(), machine.metadata.deletion_timestamp.is_some());
        let member = status.members.iter().find(|member| member.machine == name);
        let votes = member.is_some_and(|member| member.role == MemberRole::Voter);
        let leads = member.is_some_and(|member| member.leader);
        let is_next = member
            .is_some_and(|member| status.operation.as_ref().is_some_and(|operation| operation.member_id == member.id));
        let is_it = match victim {
            Victim::Leader => leads,
            Victim::Follower => votes && !leads && !goes && old.contains(&name),
            Victim::Newcomer => !old.contains(&name),
            Victim::Leaver => goes && votes && !is_next,
            Victim::Small => votes && name == SMALL,
        };
        let runs = bed.machines.get(&handle.namespace, &name).is_ok_and(|machine| machine.is_running());
        if is_it && runs && !dead.iter().any(|dead| dead.machine == name) {
            let url = member.map(|member| member.client_url.clone());
            return Ok(Some(Found { machine: name, url }));
        }
    }
    Ok(None)
}
