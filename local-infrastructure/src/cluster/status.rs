//! The status of a LocalCluster. Pure.

use super::{observation::Observation, plan::Step};
use crate::{
    crd::{FailureDomain, Initialization, LocalClusterStatus, conditions},
    status::paused,
};
use api::conditions::{Draft, from_drafts};
use controller_support::Plan;

/// The status that follows from the observation and the plan. A provisioned LocalCluster stays provisioned.
pub(super) fn status(observation: &Observation, plan: &Plan<Step>) -> LocalClusterStatus {
    let object = &observation.object;
    let before = object.status.clone().unwrap_or_default();
    let not = |reason, message: &str| Draft::new(conditions::READY, false, reason, message);
    let ready = match plan.hold() {
        Some(hold) if !(observation.is_paused() && before.ready) => not(hold.reason, &hold.message),
        _ => Draft::new(conditions::READY, true, conditions::IS_READY, ""),
    };
    let provisioned = before.initialization.provisioned || *plan == Plan::Steady;
    let reported = |name: &String| FailureDomain { name: name.clone(), control_plane: true };
    LocalClusterStatus {
        ready: provisioned,
        initialization: Initialization { provisioned },
        // A paused object keeps its status.
        failure_domains: if observation.is_paused() {
            before.failure_domains
        } else {
            object.spec.failure_domains.iter().map(reported).collect()
        },
        conditions: from_drafts(
            &before.conditions,
            vec![ready, paused(observation.is_paused())],
            object.metadata.generation,
            &observation.now,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::plan::{plan, tests::observation};
    use serde_json::{Value, json};

    const ENDPOINT: &str = r#"{"spec": {"controlPlaneEndpoint": {"host": "example.test", "port": 443}}}"#;

    fn provisioned(paused: bool) -> Observation {
        observation(&serde_json::from_str(ENDPOINT).expect("JSON"), Some(paused))
    }

    fn now(observation: &Observation) -> LocalClusterStatus {
        status(observation, &plan(observation))
    }

    #[test]
    fn once_provisioned_it_stays_so() {
        let first = now(&provisioned(false));
        assert!(first.ready && first.initialization.provisioned);
        let mut later = provisioned(true);
        assert!(!now(&later).ready, "a pause begins nothing");
        later.object.status = Some(first);
        let later = now(&later);
        assert!(later.ready && later.initialization.provisioned);
        assert!(api::conditions::is_true(&later.conditions, conditions::READY));
    }

    #[test]
    fn failure_domains_are_reported_unless_there_is_a_pause() {
        let domains = |observation: &Observation| {
            serde_json::to_value(now(observation)).expect("JSON").get("failureDomains").cloned()
        };
        assert_eq!(domains(&provisioned(false)), None);
        let two = |paused| {
            let mut observation = provisioned(paused);
            observation.object.spec.failure_domains = vec!["b".to_owned(), "a".to_owned()];
            observation
        };
        assert_eq!(domains(&two(true)), None);
        let reported: Option<Value> =
            Some(json!([{"name": "b", "controlPlane": true}, {"name": "a", "controlPlane": true}]));
        assert_eq!(domains(&two(false)), reported);
        for (paused, expected) in [(true, reported), (false, None)] {
            let mut later = provisioned(paused);
            later.object.status = Some(now(&two(false)));
            assert_eq!(domains(&later), expected);
        }
    }
}
