//! Whose machine fails.

use anyhow::Result;
use api::etcd_cluster::MemberRole;
use e2e::bed::{Bed, ClusterHandle};
use kube::ResourceExt;
use kube::api::ListParams;

/// The machine with a small disk, if there is one.
pub(super) const SMALL: &str = "demo-etcd-2";

/// The part that a machine plays in a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// The leader.
    Leader,
    /// A voter from before the change that does not lead, and that stays for now.
    Follower,
    /// A Machine that was not there before the change.
    Newcomer,
    /// A voter that is on its way out, but is not the one that is being removed now.
    Leaver,
    /// The voter that has a small disk, whatever else it does.
    Small,
}

/// A machine, and the client URL of its member, if it has one.
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

/// The running machine that plays this part at the moment, if there is one. It is none of the `dead`.
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
