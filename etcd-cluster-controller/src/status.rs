//! The status that follows from what was observed and decided. Pure. Facts that cannot be derived again are carried
//! over from the previous status: since when a member has been healthy, what has been true once, and what has been
//! removed.

mod alarms;
mod conditions;
mod failures;
mod ledger;
mod machines_ready;
mod members;
mod remediating;
#[cfg(test)]
mod tests;
pub mod transitions;

use crate::observation::{ClusterLink, Observation};
use crate::plan::{Decision, Plan, View};
use api::EtcdCluster;
use api::conditions::{MACHINES_READY, reasons, same_states};
use api::etcd_cluster::{EtcdClusterStatus, MemberStatus};
use api::names;
use api::version::EtcdVersion;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// Derives the status. `failed`: why the step of the decision could not be done, if it could not.
#[must_use]
pub fn status(observation: &Observation, decision: &Decision, failed: Option<&str>) -> EtcdClusterStatus {
    let view = View::new(observation);
    let before = observation.etcd.status.clone().unwrap_or_default();
    let members = members::members(&view);
    let initialized = before.initialized || observation.init_urls.is_some();
    let ready_replicas = count(view.roster.voters().filter(|seat| seat.counts).count());
    let updated = updated(&view);
    let mut status = EtcdClusterStatus {
        ready: initialized && decision.publish.ready,
        initialized,
        creation_complete: before.creation_complete || (initialized && decision.publish.complete),
        replicas: count(observation.live_machines().count()),
        ready_replicas,
        available_replicas: count(view.roster.voters().filter(|seat| seat.is_healthy()).count()),
        up_to_date_replicas: updated,
        updated_replicas: updated,
        endpoint: decision.publish.endpoints.clone(),
        endpoints: decision.publish.endpoints.clone(),
        endpoints_in_use: observation.endpoints_in_use().unwrap_or_default().to_owned(),
        last_name_number: observation.last_name_number().and_then(|number| i64::try_from(number).ok()),
        selector: format!("{}={}", names::ETCD_CLUSTER_LABEL, observation.etcd.name_any()),
        init_machine_address: before.init_machine_address.clone(),
        version: lowest_version(&members),
        cluster_id: observation.recorded_cluster_id().unwrap_or_default().to_owned(),
        operation: ledger::operation(before.operation.clone(), &decision.next, failed),
        released_machine_uids: ledger::released_machine_uids(&view, &before, &decision.next),
        last_remediation: ledger::last_remediation(before.last_remediation.clone(), &decision.next),
        removed_members: ledger::removed_members(&view, &before, (&decision.next, failed)),
        members,
        observed_generation: observation.etcd.metadata.generation,
        conditions: Vec::new(),
    };
    if observation.init_urls.is_some()
        && let ClusterLink::One(cluster) = &observation.cluster
    {
        status.init_machine_address = names::init_secret(&cluster.name);
    }
    status.conditions = conditions::conditions(&view, (decision, failed), &status, &before.conditions);
    status
}

/// The status if the API server refuses a read, so that nothing was observed. Ready reports the refusal, and the rest
/// stays as it was.
#[must_use]
pub(crate) fn unobserved(etcd: &EtcdCluster, message: &str, now: Timestamp) -> EtcdClusterStatus {
    let mut status = etcd.status.clone().unwrap_or_default();
    status.conditions = conditions::unobserved(etcd, message, &Time(now));
    status
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Whether a status has to be written. It ignores conditions that others have added.
#[must_use]
pub fn differs(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus) -> bool {
    let Some(before) = before else { return true };
    let mut ours = before.clone();
    ours.conditions.retain(|condition| after.conditions.iter().any(|own| own.type_ == condition.type_));
    ours.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    ours != *after
}

/// Whether the status may be left unwritten for a moment: everything that cannot be derived again is as before. Only
/// messages, counts and figures may differ.
#[must_use]
pub(crate) fn can_wait(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus, next: &Plan) -> bool {
    let written = before;
    let before = written.cloned().unwrap_or_default();
    loses_nothing(&before, after)
        && match next {
            Plan::Do(step) => step.is_observed_at_once(),
            Plan::Wait(_) => {
                before.observed_generation == after.observed_generation
                    && same_states(&before.conditions, &without_machines_ready(after).conditions)
                    && differs(written, after)
            }
            // A person has to act, or is told that all is well.
            Plan::Block(_) | Plan::Steady => {
                let (old, new) = (without_machines_ready(&before), without_machines_ready(after));
                let new = with_figures_of(&old, &new);
                !differs(Some(&old), &new) && differs(written, after)
            }
        }
}

/// Whether a status that reports a failure or a refusal may be left unwritten for a moment, because the failure may be
/// over by then. That holds if the status reports nothing else.
#[must_use]
pub(crate) fn failure_can_wait(before: Option<&EtcdClusterStatus>, after: &EtcdClusterStatus) -> bool {
    let Some(written) = before else { return false };
    let only_says_so = |new: &Condition| {
        let is_known = |old: &Condition| old.reason == new.reason || new.reason == reasons::REFUSED;
        written.conditions.iter().any(|old| old.type_ == new.type_ && old.status == new.status && is_known(old))
    };
    loses_nothing(written, after)
        && written.observed_generation == after.observed_generation
        && without_machines_ready(after).conditions.iter().all(only_says_so)
        && differs(before, after)
}

/// Whether everything that cannot be derived again is as before.
fn loses_nothing(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> bool {
    let after = with_figures_of(before, after);
    let kept = EtcdClusterStatus {
        replicas: before.replicas,
        updated_replicas: before.updated_replicas,
        up_to_date_replicas: before.up_to_date_replicas,
        ready_replicas: before.ready_replicas,
        available_replicas: before.available_replicas,
        // The annotation has this number.
        last_name_number: before.last_name_number,
        selector: before.selector.clone(),
        cluster_id: before.cluster_id.clone(),
        observed_generation: before.observed_generation,
        conditions: before.conditions.clone(),
        ..after
    };
    kept == *before
}

/// A status without the changes that nobody waits for: the sizes of the databases, and the first list of endpoints in
/// use. The annotation has that list. If a replaced object has lost the annotation, a status without a list is as safe
/// as one with the first list. A status with an older list is not, so a change from one list to another counts.
fn with_figures_of(before: &EtcdClusterStatus, after: &EtcdClusterStatus) -> EtcdClusterStatus {
    let mut after = after.clone();
    if before.endpoints_in_use.is_empty() {
        after.endpoints_in_use.clear();
    }
    for member in &mut after.members {
        let known = before.members.iter().find(|known| known.id == member.id);
        member.database_size_bytes = known.and_then(|known| known.database_size_bytes);
    }
    after
}

/// A status without the condition that sums up the Machines' own conditions. Those change often while a Machine comes
/// up, and nobody waits for them.
fn without_machines_ready(status: &EtcdClusterStatus) -> EtcdClusterStatus {
    let mut status = status.clone();
    status.conditions.retain(|condition| condition.type_ != MACHINES_READY);
    status
}

fn updated(view: &View<'_>) -> i32 {
    count(view.observation.live_machines().filter(|machine| view.is_up_to_date(machine)).count())
}

fn lowest_version(members: &[MemberStatus]) -> String {
    let versions = members.iter().filter_map(|member| member.version.parse::<EtcdVersion>().ok());
    versions.min().map(|version| version.to_string()).unwrap_or_default()
}
