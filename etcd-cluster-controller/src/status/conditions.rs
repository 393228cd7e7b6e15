//! Conditions of an EtcdCluster: one small function each.

use super::alarms::{no_alarms, read_only};
use super::failures;
use super::machines_ready::machines_ready;
use super::remediating::remediating;
use super::transitions::is_alarming;
use crate::build;
use crate::observation::Certificates;
use crate::plan::{
    Decision, Plan, Step, View, WhyDeleted, corruption_holds, describe_leaving, is_outdated, leaving_waits_for,
    lets_one_go, rollout_waits_for, version_refusal,
};
use crate::roster::Seat;
use api::conditions::{self as c, Draft, from_drafts, reasons};
use api::etcd_cluster::{EtcdClusterStatus, RemovalState, RolloutType};
use api::version::EtcdVersion;
use api::{EtcdCluster, names};
use controller_support::external::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use std::collections::BTreeSet;

pub(super) fn conditions(
    view: &View<'_>,
    (decision, failed): (&Decision, Option<&str>),
    status: &EtcdClusterStatus,
    before: &[Condition],
) -> Vec<Condition> {
    let plan = &decision.next;
    let mut drafts = vec![
        ready(view, plan, status),
        available(view, status),
        initialized(status),
        certificates(view, plan),
        members_healthy(view, status),
        no_alarms(view),
        endpoints(status),
        scaling_up(decision, status),
        scaling_down(view, decision, status),
        up_to_date(view, plan, status),
        machines_ready(view),
        machines_deleting(view, plan, failed),
        remediating(view),
        paused(plan),
        deleting(view, plan),
    ];
    failures::add(&mut drafts, plan, failed);
    if let Some(answer) = failures::answer(plan, failed) {
        drafts = drafts.into_iter().map(|draft| draft.in_the_words_of(before, answer)).collect();
    }
    let rolling_out = rolling_out(&drafts);
    drafts.push(rolling_out);
    let etcd = &view.observation.etcd;
    from_drafts(before, drafts, etcd.metadata.generation, &Time(view.observation.now))
}

/// Types of the conditions that are ours.
const OURS: [&str; 16] = [
    c::READY,
    c::AVAILABLE,
    c::INITIALIZED,
    c::CERTIFICATES_AVAILABLE,
    c::MEMBERS_HEALTHY,
    c::NO_ALARMS,
    c::ENDPOINTS_AVAILABLE,
    c::SCALING_UP,
    c::SCALING_DOWN,
    c::MACHINES_UP_TO_DATE,
    c::ROLLING_OUT,
    c::MACHINES_READY,
    c::MACHINES_DELETING,
    c::REMEDIATING,
    c::PAUSED,
    c::DELETING,
];

/// The conditions if nothing was observed, because the API server refuses a read. No member is at fault: Ready is
/// Unknown, and the other conditions keep what was known last, except for a deletion.
pub(super) fn unobserved(etcd: &EtcdCluster, message: &str, now: &Time) -> Vec<Condition> {
    let before = etcd.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut drafts = vec![Draft::unknown(c::READY, reasons::REFUSED, message).in_known_words(before)];
    // The object itself shows that it is being deleted, whatever read is refused.
    if etcd.metadata.deletion_timestamp.is_some() && !c::is_true(before, c::DELETING) {
        drafts.push(Draft::new(c::DELETING, true, reasons::DELETING, "Ready says what is waited for"));
    }
    let mut conditions = from_drafts(before, drafts, etcd.metadata.generation, now);
    let is_said = |type_: &str| conditions.iter().any(|condition| condition.type_ == type_);
    let stays = |old: &&Condition| !is_said(&old.type_) && OURS.contains(&old.type_.as_str());
    let staying: Vec<Condition> = before.iter().filter(stays).cloned().collect();
    conditions.extend(staying);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions
}

/// The message for a cluster that is not initialized.
const NOT_UP: &str = "the first member has not come up yet; Ready says what is waited for";

/// The reason and the message for what the plan does or waits for.
fn what(plan: &Plan) -> (&'static str, String) {
    let step = match plan {
        Plan::Wait(hold) | Plan::Block(hold) => return (hold.reason, hold.message.clone()),
        Plan::Steady => return (reasons::READY, String::new()),
        Plan::Do(step) => step,
    };
    let reason = match step {
        Step::Record { .. } | Step::EnsureCertificates | Step::LabelCa => reasons::WAITING_FOR_CERTIFICATES,
        Step::BeginRemediation(_)
        | Step::DeleteMachine { why: WhyDeleted::Unhealthy | WhyDeleted::Marked | WhyDeleted::Stuck, .. } => {
            reasons::REPLACING_MEMBER
        }
        Step::DeleteMachine { why: WhyDeleted::Surplus, .. } => reasons::SCALING_DOWN,
        Step::DeleteMachine { why: WhyDeleted::Outdated, .. } => reasons::ROLLING_OUT,
        Step::Begin(_) | Step::Finish(_) | Step::MoveLeader { .. } | Step::RemoveMember(_) => reasons::REMOVING_MEMBER,
        Step::DeleteMachines { .. } | Step::RemoveFinalizer | Step::NoteRelease { .. } | Step::ReleaseHook { .. } => {
            reasons::DELETING
        }
        Step::PublishInit { .. }
        | Step::CreateMachine { .. }
        | Step::Admit { .. }
        | Step::DeleteHeldBack { .. }
        | Step::SetProviderId { .. }
        | Step::AddHook { .. } => reasons::SCALING_UP,
    };
    (reason, step.describe())
}

fn ready(view: &View<'_>, plan: &Plan, status: &EtcdClusterStatus) -> Draft {
    if status.ready {
        // People read Ready first, so it also says that API servers cannot write.
        let message = read_only(view).map(|(_, message)| message).unwrap_or_default();
        return Draft::new(c::READY, true, reasons::READY, message);
    }
    match plan {
        Plan::Steady => Draft::new(c::READY, false, reasons::MEMBER_UNHEALTHY, not_well(view)),
        _ => {
            let (reason, message) = what(plan);
            Draft::new(c::READY, false, reason, message)
        }
    }
}

/// True if a quorum is known to be healthy, or has just answered a linearizable read of the member list. False only if
/// the quorum would be lost even if all members of unknown health were healthy, or if etcd itself refuses writes.
fn available(view: &View<'_>, status: &EtcdClusterStatus) -> Draft {
    let number = |wanted: &dyn Fn(&Seat<'_>) -> bool| view.roster.voters().filter(|seat| wanted(seat)).count();
    let listed = view.roster.is_listed();
    // If no quorum answers with the member list, a member that has just begun to fail may be the one that the quorum
    // lacks.
    let well = |seat: &Seat<'_>| if listed { seat.counts } else { seat.is_well() };
    // The latest probe of a member that was promoted a moment ago may be from before it served. As long as a quorum
    // answers with the list, that is not a failure.
    let doubtful = |seat: &Seat<'_>| seat.is_unknown() || seat.counts || (listed && !seat.is_unhealthy());
    let unknown = number(&|seat| !well(seat) && doubtful(seat));
    let (count, well) = (number(&|_| true), number(&well));
    if !status.initialized {
        return Draft::new(c::AVAILABLE, false, reasons::NOT_INITIALIZED, NOT_UP);
    }
    if count == 0 {
        return Draft::unknown(c::AVAILABLE, reasons::MEMBERSHIP_UNKNOWN, "the member list has not been read yet");
    }
    let quorum = count / 2 + 1;
    if well >= quorum || (well + unknown >= quorum && view.roster.is_listed()) {
        return match read_only(view) {
            Some((reason, message)) => Draft::new(c::AVAILABLE, false, reason, message),
            None => Draft::new(c::AVAILABLE, true, reasons::AVAILABLE, ""),
        };
    }
    let failing = not_well(view);
    if well + unknown >= quorum {
        let message = format!("{well} of {count} voters are known to be healthy, a quorum is {quorum}: {failing}");
        return Draft::unknown(c::AVAILABLE, reasons::HEALTH_UNKNOWN, message);
    }
    // The guard on the machine enforces the first half of this message. The plan enforces the second half: it makes
    // nothing in the member's place.
    let only = "A member that has lost its data never starts again, and nothing new is made in its place: bring its machine back, or delete the EtcdCluster to start over";
    let many = "Nothing is removed; if all are well, look at the network between them and this controller";
    let hint = if count == 1 { only } else { many };
    let message = format!("{well} of {count} voters are healthy, a quorum is {quorum}: {failing}. {hint}");
    Draft::new(c::AVAILABLE, false, reasons::QUORUM_LOST, message)
}

fn initialized(status: &EtcdClusterStatus) -> Draft {
    if status.initialized {
        Draft::new(c::INITIALIZED, true, reasons::INITIALIZED, "")
    } else {
        Draft::new(c::INITIALIZED, false, reasons::NOT_INITIALIZED, NOT_UP)
    }
}

fn certificates(view: &View<'_>, plan: &Plan) -> Draft {
    let reason = |reason, message: String| Draft::new(c::CERTIFICATES_AVAILABLE, false, reason, message);
    match (&view.observation.certificates, plan) {
        (Certificates::Ca { expires: Some(expires), .. }, _) if *expires <= view.observation.now => {
            let secret = |cluster: &ClusterView| names::staged_apiserver_client_secret(&cluster.name);
            let message = format!(
                "the API servers' client certificate in Secret {} expired at {expires:.0}; a new one is made as soon as Ready no longer names an obstacle",
                view.cluster().map(secret).unwrap_or_default()
            );
            reason(reasons::SECRET_INVALID, message)
        }
        (certificates, _) if certificates.serve(view.observation.now) => {
            Draft::new(c::CERTIFICATES_AVAILABLE, true, reasons::CERTIFICATES_AVAILABLE, "")
        }
        (_, Plan::Block(hold)) if hold.reason == reasons::SECRET_INVALID => reason(hold.reason, hold.message.clone()),
        _ => reason(reasons::WAITING_FOR_CERTIFICATES, what(plan).1),
    }
}

fn members_healthy(view: &View<'_>, status: &EtcdClusterStatus) -> Draft {
    let missing = status.removed_members.iter().filter(|record| record.state == RemovalState::Missing);
    let missing: Vec<String> = missing
        .map(|record| {
            format!(
                "member {} of Machine {} has been missing from the member list since {:.0}",
                record.id, record.machine, record.since.0
            )
        })
        .collect();
    let members: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| seat.member.is_some()).collect();
    if members.is_empty() {
        Draft::unknown(c::MEMBERS_HEALTHY, reasons::NOT_INITIALIZED, "there is no member yet")
    } else if !missing.is_empty() {
        Draft::new(c::MEMBERS_HEALTHY, false, reasons::MEMBER_MISSING, missing.join("; "))
    } else if members.iter().all(|seat| seat.is_healthy()) {
        Draft::new(c::MEMBERS_HEALTHY, true, reasons::MEMBERS_HEALTHY, "")
    } else if members.iter().all(|seat| seat.is_healthy() || seat.is_unknown()) {
        Draft::unknown(c::MEMBERS_HEALTHY, reasons::HEALTH_UNKNOWN, not_well(view))
    } else {
        Draft::new(c::MEMBERS_HEALTHY, false, reasons::MEMBER_UNHEALTHY, not_well(view))
    }
}

/// Every member that is not known to be healthy, and why. Members that still count as healthy are included, because a
/// person wants to know early.
fn not_well(view: &View<'_>) -> String {
    let members = view.roster.seats.iter().filter(|seat| seat.member.is_some() && !seat.is_healthy());
    members.map(Seat::describe).collect::<Vec<_>>().join("; ")
}

fn endpoints(status: &EtcdClusterStatus) -> Draft {
    if status.endpoints.is_empty() {
        Draft::new(c::ENDPOINTS_AVAILABLE, false, reasons::NO_ENDPOINTS, "no member votes yet")
    } else {
        Draft::new(c::ENDPOINTS_AVAILABLE, true, reasons::ENDPOINTS_AVAILABLE, "")
    }
}

fn scaling_up(decision: &Decision, status: &EtcdClusterStatus) -> Draft {
    let wanted = decision.goal.voters;
    let machines = usize::try_from(status.replicas).unwrap_or(0);
    if machines >= wanted && status.members.len() >= wanted {
        return Draft::new(c::SCALING_UP, false, reasons::NOT_SCALING_UP, "");
    }
    let (reason, message) = what(&decision.next);
    let count = format!("{} of {wanted} members are healthy voters", status.ready_replicas);
    let message = if message.is_empty() { count } else { format!("{count}: {message}") };
    Draft::new(c::SCALING_UP, true, reason, message)
}

/// True if there are more Machines than wanted, and surplus Machines stay or have been deleted. Machines that are to be
/// replaced, in a remediation or a rollout, are not surplus.
fn scaling_down(view: &View<'_>, decision: &Decision, status: &EtcdClusterStatus) -> Draft {
    let wanted = decision.goal.voters;
    let machines = view.observation.machines.len();
    let kept = usize::try_from(status.replicas).unwrap_or(0);
    let begun = status.last_remediation.as_ref().map(|last| last.machine_uid.as_str());
    let replaces = view.observation.live_machines().any(|machine| Some(machine.uid.as_str()) == begun);
    let outdated = view.roster.seats.iter().filter(|seat| is_outdated(view, seat)).count();
    let goes = kept >= wanted && outdated == 0 && status.members.len() > wanted;
    if machines <= wanted || !(kept > wanted + usize::from(replaces) + outdated || goes) {
        return Draft::new(c::SCALING_DOWN, false, reasons::NOT_SCALING_DOWN, "");
    }
    let waiting = leaving_waits_for(view);
    let count = format!("{machines} Machines, and {wanted} are wanted");
    let leaving = (!waiting.is_empty()).then(|| describe_leaving(view, &waiting));
    let why = leaving.or_else(|| corruption_holds(view)).map(|why| format!(": {why}")).unwrap_or_default();
    let message = count + &why;
    match failures::alarming(&decision.next) {
        Some(hold) if message.contains(&hold.message) => Draft::new(c::SCALING_DOWN, true, hold.reason, message),
        Some(hold) => Draft::new(c::SCALING_DOWN, true, hold.reason, format!("{message}: {}", hold.message)),
        None => Draft::new(c::SCALING_DOWN, true, reasons::SCALING_DOWN, message),
    }
}

/// True if no Machine and no member is left that does not match the spec. The message says what holds up a rollout,
/// because Ready may be True all the while.
fn up_to_date(view: &View<'_>, plan: &Plan, status: &EtcdClusterStatus) -> Draft {
    let draft = |reason, message: String| Draft::new(c::MACHINES_UP_TO_DATE, false, reason, message);
    if let Some(message) = version_refusal(view) {
        return draft(reasons::UNSUPPORTED_VERSION_CHANGE, message);
    }
    let pinned = build::version(&view.observation.etcd);
    if let Some(wanted) =
        view.observation.etcd.spec.etcdadm_config_spec.etcd_version().filter(|wanted| *wanted != pinned)
    {
        let message = format!("version {wanted} of the spec is not in force yet: new members get {pinned}");
        return draft(reasons::ROLLING_OUT, message);
    }
    let draft = |reason, message: String| draft(reason, without_backup(pinned, status) + &message);
    let stay = status.replicas - status.updated_replicas;
    let members = view.roster.members().filter_map(|(_, seat)| seat.machine);
    let leaving = members.filter(|machine| machine.deleting && !view.is_up_to_date(machine));
    let leaving: Vec<&str> = leaving.map(|machine| machine.name.as_str()).collect();
    if stay == 0 && leaving.is_empty() {
        return Draft::new(c::MACHINES_UP_TO_DATE, true, reasons::UP_TO_DATE, "");
    }
    let expiring = view.observation.live_machines().filter(|machine| build::expires_soon(view.observation, machine));
    let expiring: Vec<&str> = expiring.map(|machine| machine.name.as_str()).collect();
    let mut count = format!("{stay} of {} Machines do not match the spec", status.replicas);
    if !expiring.is_empty() {
        let days = view.observation.etcd.spec.rollout_before.certificates_expiry_days;
        count += &format!(" (certificates expire within {days} days: {})", expiring.join(", "));
    }
    if stay > 0 && view.observation.etcd.spec.rollout_strategy.type_ == RolloutType::OnDelete {
        let message = format!("{count} and stay until somebody deletes them (spec.rolloutStrategy.type)");
        return draft(reasons::MADE_FROM_AN_EARLIER_SPEC, message);
    }
    let gone = format!("old members have not left etcd yet: {}", leaving.join(", "));
    let count = match (stay, leaving.is_empty()) {
        (0, _) => gone,
        (_, true) => format!("{count} and are replaced"),
        (_, false) => format!("{count} and are replaced; {gone}"),
    };
    // MachinesDeleting says what the last old members wait for.
    if stay == 0 {
        return draft(reasons::ROLLING_OUT, count);
    }
    let hold = plan.hold();
    let reason = hold.map(|hold| hold.reason).filter(|reason| is_alarming(reason)).unwrap_or(reasons::ROLLING_OUT);
    // A member on its way out may wait for the rollout itself. Then the message of the rollout says more.
    let says_more = hold.is_none_or(|hold| hold.reason == reasons::WAITING_FOR_SAFE_REMOVAL);
    let why = rollout_waits_for(view).filter(|_| says_more).or_else(|| hold.map(|hold| hold.message.clone()));
    draft(reason, why.map_or_else(|| count.clone(), |why| format!("{count}: {why}")))
}

/// Which version etcd goes from and to, and that there is no backup from before (rule 7). Empty if all members run the
/// version that new members get.
fn without_backup(pinned: &str, status: &EtcdClusterStatus) -> String {
    let Ok(wanted) = pinned.parse::<EtcdVersion>() else { return String::new() };
    let versions = status.members.iter().filter_map(|member| member.version.parse::<EtcdVersion>().ok());
    let others: BTreeSet<EtcdVersion> = versions.filter(|version| *version != wanted).collect();
    if others.is_empty() {
        return String::new();
    }
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    format!(
        "etcd goes from {} to {wanted}, and there is no backup from before this change: this provider does not make backups yet. ",
        others.join(", ")
    )
}

/// True while Machines that do not match the spec are replaced. The message is that of MachinesUpToDate, which says
/// what holds up the rollout. False if nothing goes on before a person deletes Machines, or sets another version in the
/// spec.
fn rolling_out(drafts: &[Draft]) -> Draft {
    let by_a_person = [reasons::MADE_FROM_AN_EARLIER_SPEC, reasons::UNSUPPORTED_VERSION_CHANGE];
    let up_to_date = drafts.iter().find(|draft| draft.type_ == c::MACHINES_UP_TO_DATE);
    match up_to_date.filter(|draft| draft.status == Some(false) && !by_a_person.contains(&draft.reason)) {
        Some(draft) => Draft::new(c::ROLLING_OUT, true, reasons::ROLLING_OUT, draft.message.clone()),
        None => Draft::new(c::ROLLING_OUT, false, reasons::NOT_ROLLING_OUT, ""),
    }
}

/// Machines that are being deleted, and what they wait for.
fn machines_deleting(view: &View<'_>, plan: &Plan, failed: Option<&str>) -> Draft {
    let waiting = leaving_waits_for(view);
    if waiting.is_empty() {
        return Draft::new(c::MACHINES_DELETING, false, reasons::NO_MACHINES_DELETING, "");
    }
    let reason = match view.observation.etcd.status.as_ref().and_then(|status| status.operation.as_ref()) {
        Some(_) => reasons::REMOVING_MEMBER,
        None if waiting.iter().any(|(_, why)| !why.is_empty()) => reasons::WAITING_FOR_SAFE_REMOVAL,
        None => reasons::DELETING,
    };
    let message = describe_leaving(view, &waiting);
    match (plan, failed, plan.hold().filter(|hold| hold.reason == reasons::REFUSED)) {
        (Plan::Do(step), Some(failed), _) if failures::is_of_leaving(step) => {
            let message = format!("{message}; the last attempt failed, and this controller tries again: {failed}");
            Draft::new(c::MACHINES_DELETING, true, reason, message)
        }
        // The refused request was most likely the one that lets one of these Machines go.
        (_, _, Some(hold)) if lets_one_go(view, &waiting) => {
            Draft::new(c::MACHINES_DELETING, true, hold.reason, format!("{message}: {}", hold.message))
        }
        _ => Draft::new(c::MACHINES_DELETING, true, reason, message),
    }
}

fn paused(plan: &Plan) -> Draft {
    match plan.hold() {
        Some(hold) if hold.reason == reasons::PAUSED => {
            Draft::new(c::PAUSED, true, reasons::PAUSED, hold.message.clone())
        }
        _ => Draft::new(c::PAUSED, false, reasons::NOT_PAUSED, ""),
    }
}

fn deleting(view: &View<'_>, plan: &Plan) -> Draft {
    if view.observation.etcd.metadata.deletion_timestamp.is_none() {
        return Draft::new(c::DELETING, false, reasons::NOT_DELETING, "");
    }
    let (reason, message) = what(plan);
    let blocked = reason == reasons::DELETION_NOT_CONFIRMED;
    Draft::new(c::DELETING, true, if blocked { reason } else { reasons::DELETING }, message)
}
