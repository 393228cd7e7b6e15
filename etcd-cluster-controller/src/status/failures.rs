//! What conditions report about a step that could not be done.

use super::transitions::is_alarming;
use crate::plan::{Hold, Plan, Step, WhyDeleted};
use api::conditions::{self as c, Draft, reasons};

/// Reasons of steps that cannot be done, which no condition shows by itself while all members are healthy.
const OF_STEPS: [&str; 3] = [reasons::REFUSED, reasons::TEMPLATE_INVALID, reasons::NAME_TAKEN];

/// The hold that only a person can clear, if the plan is blocked by one.
pub(super) fn alarming(plan: &Plan) -> Option<&Hold> {
    let Plan::Block(hold) = plan else { return None };
    is_alarming(hold.reason).then_some(hold)
}

/// Whether a Machine that is being deleted waits for this step.
pub(super) fn is_of_leaving(step: &Step) -> bool {
    matches!(step, Step::RemoveMember(_) | Step::MoveLeader { .. } | Step::ReleaseHook { .. })
}

/// Adds why a step could not be done to a condition that waits for the step.
pub(super) fn add(drafts: &mut [Draft], plan: &Plan, failed: Option<&str>) {
    match (plan, failed) {
        (Plan::Do(step), Some(failed)) => add_failure(drafts, step, failed),
        (Plan::Block(hold), _) if OF_STEPS.contains(&hold.reason) => add_hold(drafts, hold),
        _ => {}
    }
}

/// The answer to the step, in the words of the API server or etcd. The messages of the conditions that report the step
/// end with this answer.
pub(super) fn answer<'a>(plan: &'a Plan, failed: Option<&'a str>) -> Option<&'a str> {
    match (plan, failed) {
        (Plan::Do(_), failed) => failed,
        (Plan::Block(hold), _) if hold.reason == reasons::REFUSED => Some(c::answer_in(&hold.message)),
        (Plan::Block(hold), _) if hold.reason == reasons::TEMPLATE_INVALID => {
            hold.message.split_once(" is refused: ").map(|(_, answer)| answer)
        }
        _ => None,
    }
}

/// Adds a failure to the first condition that waits for the step. If no condition waits for it, Ready reports the
/// failure even while it is True, because people read Ready first.
fn add_failure(drafts: &mut [Draft], step: &Step, failed: &str) {
    let is_on =
        |type_: &str, status: bool| drafts.iter().any(|draft| draft.type_ == type_ && draft.status == Some(status));
    // MachinesDeleting reports the failure itself.
    if is_of_leaving(step) && is_on(c::MACHINES_DELETING, true) {
        return;
    }
    let (ready, rollout, surplus) = ((c::READY, false), (c::MACHINES_UP_TO_DATE, false), (c::SCALING_DOWN, true));
    let order = match step {
        Step::DeleteMachine { why: WhyDeleted::Surplus, .. } => [ready, surplus, rollout],
        _ => [ready, rollout, surplus],
    };
    let waits = order.into_iter().find(|(type_, status)| is_on(type_, *status)).unwrap_or((c::READY, true));
    let Some(draft) = drafts.iter_mut().find(|draft| draft.type_ == waits.0) else { return };
    let mut said = vec![std::mem::take(&mut draft.message), step.describe()];
    said.retain(|text| !text.is_empty());
    said.dedup();
    let begin = if said.is_empty() { String::new() } else { said.join(": ") + "; " };
    draft.message = format!("{begin}the last attempt failed, and this controller tries again: {failed}");
}

/// Adds a hold that only a person can clear to Ready, unless a condition reports it already.
fn add_hold(drafts: &mut [Draft], hold: &Hold) {
    if drafts.iter().any(|draft| draft.message.contains(&hold.message)) {
        return;
    }
    let Some(draft) = drafts.iter_mut().find(|draft| draft.type_ == c::READY) else { return };
    let said = std::mem::take(&mut draft.message);
    draft.reason = hold.reason;
    draft.message = if said.is_empty() { hold.message.clone() } else { format!("{said}; {}", hold.message) };
}
