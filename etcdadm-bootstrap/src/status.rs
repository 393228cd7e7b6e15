//! The status that follows from what was observed and planned. Pure.

use crate::observation::Observation;
use crate::plan::Plan;
use api::EtcdadmConfig;
use api::conditions::{self, DATA_SECRET_AVAILABLE, Draft, PAUSED, reasons};
use api::etcdadm_config::{EtcdadmConfigStatus, Initialization};
use controller_support::Hold;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// The status after a reconcile.
pub(crate) fn status(observation: &Observation, plan: &Plan) -> EtcdadmConfigStatus {
    let available = *plan == Plan::Steady;
    let before = observation.config.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let generation = observation.config.metadata.generation;
    let data = data(plan);
    let data = if data.reason == reasons::REFUSED { data.in_known_words(before) } else { data };
    let drafts = vec![data, paused(observation)];
    let conditions = conditions::from_drafts(before, drafts, generation, &Time(observation.now));
    EtcdadmConfigStatus {
        ready: available,
        initialization: Some(Initialization { data_secret_created: available }),
        data_secret_name: available.then(|| observation.config.name_any()),
        observed_generation: generation,
        conditions,
    }
}

/// The status if the API server refuses a read or a write, so that nothing is known. The condition says so, and the
/// rest stays as it was: data that exists is still reported.
pub(crate) fn refused(config: &EtcdadmConfig, message: &str, now: Timestamp) -> EtcdadmConfigStatus {
    let before = config.status.clone().unwrap_or_default();
    let draft = Draft::unknown(DATA_SECRET_AVAILABLE, reasons::REFUSED, message);
    let drafts = vec![draft.in_known_words(&before.conditions)];
    let mut conditions = conditions::from_drafts(&before.conditions, drafts, config.metadata.generation, &Time(now));
    conditions.extend(before.conditions.iter().filter(|condition| condition.type_ == PAUSED).cloned());
    EtcdadmConfigStatus { conditions, ..before }
}

fn data(plan: &Plan) -> Draft {
    match plan {
        Plan::Steady => Draft::new(DATA_SECRET_AVAILABLE, true, reasons::DATA_SECRET_AVAILABLE, ""),
        Plan::Wait(hold) | Plan::Block(hold) => {
            Draft::new(DATA_SECRET_AVAILABLE, false, hold.reason, hold.message.clone())
        }
        // No status is written between two steps.
        Plan::Do(_) => Draft::new(DATA_SECRET_AVAILABLE, false, reasons::WAITING_FOR_INITIALIZATION, ""),
    }
}

fn paused(observation: &Observation) -> Draft {
    match observation.paused() {
        Some(paused) => Draft::new(PAUSED, true, reasons::PAUSED, format!("{paused}: no bootstrap data is created")),
        None => Draft::new(PAUSED, false, reasons::NOT_PAUSED, ""),
    }
}

/// Whether a status has to be written. Ignores conditions owned by other controllers.
pub(crate) fn differs(before: Option<&EtcdadmConfigStatus>, after: &EtcdadmConfigStatus) -> bool {
    let Some(before) = before else { return true };
    let ours = |condition: &&Condition| after.conditions.iter().any(|own| own.type_ == condition.type_);
    let mut conditions: Vec<Condition> = before.conditions.iter().filter(ours).cloned().collect();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    EtcdadmConfigStatus { conditions, ..before.clone() } != *after
}

/// Whether the write of the status may be deferred for a moment: the status only says in other words that there is no
/// data yet. A config waits for its Machine, for etcd and for its admission, often only for milliseconds.
pub(crate) fn can_wait(before: Option<&EtcdadmConfigStatus>, after: &EtcdadmConfigStatus, plan: &Plan) -> bool {
    if !matches!(plan, Plan::Wait(_)) {
        return false;
    }
    let Some(before) = before else { return after.conditions.iter().all(|condition| condition.status == "False") };
    let words = EtcdadmConfigStatus { conditions: before.conditions.clone(), ..after.clone() };
    words == *before && conditions::same_states(&before.conditions, &after.conditions) && differs(Some(before), after)
}

/// Whether the report of a refusal may be deferred for a moment, because the refusal may soon be over: nothing else has
/// changed. That data no longer exists is not deferred, because its Machine must learn of it.
pub(crate) fn failure_can_wait(before: Option<&EtcdadmConfigStatus>, after: &EtcdadmConfigStatus) -> bool {
    let Some(before) = before else { return after.conditions.iter().all(|new| new.reason == reasons::REFUSED) };
    let only_says_so = |new: &Condition| {
        let is_known = |old: &Condition| old.status == new.status && old.reason == new.reason;
        before.conditions.iter().any(|old| old.type_ == new.type_ && (new.reason == reasons::REFUSED || is_known(old)))
    };
    let words = EtcdadmConfigStatus { conditions: before.conditions.clone(), ..after.clone() };
    words == *before && after.conditions.iter().all(only_says_so) && differs(Some(before), after)
}

/// Why the plan is blocked, if the status does not say so already: this is worth a warning event. A refusal is compared
/// by its reason alone, because the API server's message may differ every time.
pub(crate) fn newly_blocked<'a>(before: Option<&EtcdadmConfigStatus>, plan: &'a Plan) -> Option<&'a Hold> {
    let Plan::Block(hold) = plan else { return None };
    let says_so = |message: &str| hold.reason == reasons::REFUSED || message == hold.message;
    let known = before.iter().flat_map(|status| &status.conditions).any(|condition| {
        condition.type_ == DATA_SECRET_AVAILABLE && condition.reason == hold.reason && says_so(&condition.message)
    });
    (!known).then_some(hold)
}

#[cfg(test)]
mod tests;
