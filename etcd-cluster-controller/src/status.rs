//! The status that follows from what was seen and decided. Pure; what cannot be derived again (since when a member is
//! well, what has once been true) is carried over from the status before.

mod conditions;
mod members;
#[cfg(test)]
mod tests;
pub mod transitions;

use crate::observation::{Certificates, Membership, Observation, hex};
use crate::plan::Plan;
use api::etcd_cluster::{EtcdClusterStatus, MemberRole, MemberStatus};
use api::names;
use api::version::EtcdVersion;
use kube::ResourceExt;

/// Derives the status. `spec_hash`: fingerprint of the present spec, as Machines carry it.
#[must_use]
pub fn status(seen: &Observation, plan: &Plan, spec_hash: &str) -> EtcdClusterStatus {
    let before = seen.etcd.status.clone().unwrap_or_default();
    let members = members::members(seen, &before.members);
    let machines = i32::try_from(seen.live_machines().count()).unwrap_or(i32::MAX);
    let well = members.iter().filter(|member| is_well(member) && member.role == MemberRole::Voter).count();
    let ready_replicas = i32::try_from(well).unwrap_or(i32::MAX);
    let certificates = matches!(seen.certificates, Certificates::Ca { control_plane_ca: true, staged_client: true });
    let wanted = seen.etcd.spec.replicas;
    let initialized = before.initialized || seen.init_urls.is_some();
    let endpoints = endpoints(seen, &members, &before);
    // A new voter is published with its first good answer. Ready before that would roll the control plane twice.
    let published = endpoints.split(',').filter(|url| !url.is_empty()).count() == well;
    let complete = machines == wanted && ready_replicas == wanted && members.len() == well && published;
    let deleting = seen.etcd.metadata.deletion_timestamp.is_some();
    let mut status = EtcdClusterStatus {
        ready: initialized && complete && certificates && !deleting,
        initialized,
        creation_complete: before.creation_complete || (initialized && complete),
        replicas: machines,
        ready_replicas,
        updated_replicas: updated(seen, spec_hash),
        endpoint: endpoints.clone(),
        endpoints,
        selector: selector(seen),
        init_machine_address: before.init_machine_address.clone(),
        version: lowest_version(&members),
        cluster_id: match &seen.membership {
            Membership::Known { cluster_id, .. } => hex(*cluster_id),
            Membership::NotAsked | Membership::Unknown(_) => before.cluster_id.clone(),
        },
        members,
        observed_generation: seen.etcd.metadata.generation,
        conditions: Vec::new(),
    };
    if seen.init_urls.is_some()
        && let Some(cluster) = cluster_name(seen)
    {
        status.init_machine_address = names::init_secret(&cluster);
    }
    status.conditions = conditions::conditions(seen, plan, &status, &before.conditions);
    status
}

/// Whether a member counts as healthy: its checks succeed, or have not failed for long enough.
pub(crate) fn is_well(member: &MemberStatus) -> bool {
    member.healthy_since.is_some()
}

/// Whether a status has to be written. Conditions that others have added are none of our business.
#[must_use]
pub fn differs(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus) -> bool {
    let Some(before) = before else { return true };
    let mut ours = before.clone();
    ours.conditions.retain(|condition| after.conditions.iter().any(|own| own.type_ == condition.type_));
    ours.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    ours != *after
}

fn cluster_name(seen: &Observation) -> Option<String> {
    match &seen.cluster {
        crate::observation::ClusterLink::One(cluster) => Some(cluster.name.clone()),
        _ => None,
    }
}

/// Client URLs of the voters, sorted. A voter is published once it answers there, and stays as long as it is a voter: a
/// client skips an endpoint that is down, while a changed list would roll the whole control plane.
fn endpoints(seen: &Observation, members: &[MemberStatus], before: &EtcdClusterStatus) -> String {
    let published: Vec<&str> = before.endpoints.split(',').filter(|url| !url.is_empty()).collect();
    let mut urls: Vec<String> = members
        .iter()
        .filter(|member| member.role == MemberRole::Voter)
        .filter_map(|member| {
            let present = seen.client_url(seen.machines.get(&member.machine)?)?;
            let answers = is_well(member) && member.unhealthy_since.is_none();
            // Its Machine may have been given an address at which nothing answers (yet), or another member.
            let candidates = [member.client_url.as_str(), present.as_str()];
            let kept = candidates.into_iter().find(|url| published.contains(url)).map(str::to_owned);
            if answers { Some(present) } else { kept }
        })
        .collect();
    urls.sort();
    urls.dedup();
    if urls.is_empty() { before.endpoints.clone() } else { urls.join(",") }
}

fn updated(seen: &Observation, spec_hash: &str) -> i32 {
    let updated = seen
        .live_machines()
        .filter(|machine| machine.annotations.get(names::SPEC_HASH_ANNOTATION).is_some_and(|hash| hash == spec_hash))
        .count();
    i32::try_from(updated).unwrap_or(i32::MAX)
}

fn selector(seen: &Observation) -> String {
    format!("{}={}", names::ETCD_CLUSTER_LABEL, seen.etcd.name_any())
}

fn lowest_version(members: &[MemberStatus]) -> String {
    let versions = members.iter().filter_map(|member| member.version.parse::<EtcdVersion>().ok());
    versions.min().map(|version| version.to_string()).unwrap_or_default()
}
