//! The answers of plans: how often each answer was given, for all clusters together, and the latest answer for each
//! cluster.

use crate::plan::{Plan, Step};
use controller_support::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The answer of a plan without names and numbers, so that the number of different answers is limited.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Answer {
    pub(crate) answer: &'static str,
    pub(crate) reason: String,
}

impl Answer {
    fn of(plan: &Plan) -> Self {
        let (answer, reason) = match plan {
            Plan::Steady => ("steady", String::new()),
            Plan::Wait(hold) => ("wait", hold.reason.to_owned()),
            Plan::Block(hold) => ("block", hold.reason.to_owned()),
            Plan::Do(step) => ("do", name(step)),
        };
        Self { answer, reason }
    }
}

/// What was answered last about each EtcdCluster, by its UID.
#[derive(Default)]
pub(crate) struct Latest(Mutex<HashMap<String, Answer>>);

impl Latest {
    /// The latest answer for an EtcdCluster. `None`: this controller has not decided about it yet.
    pub(crate) fn of(&self, uid: &str) -> Option<Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// Forgets the EtcdClusters for which `is_there` returns false.
    pub(crate) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| is_there(uid));
    }

    fn set(&self, uid: &str, answer: Answer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned(), answer);
    }
}

/// Counts decisions, and knows the latest ones.
pub(crate) struct Decisions {
    counted: Family<Answer, Counter>,
    pub(crate) latest: Arc<Latest>,
}

impl Decisions {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counted = Family::default();
        metrics.register("decisions", |registry| {
            registry.register("etcd_decisions", "Decisions by answer and reason", counted.clone());
        });
        Self { counted, latest: Arc::default() }
    }

    /// Counts the decision of one reconcile of an EtcdCluster.
    pub(crate) fn count(&self, uid: &str, plan: &Plan) {
        let answer = Answer::of(plan);
        self.counted.get_or_create(&answer).inc();
        self.latest.set(uid, answer);
    }
}

/// The name of a step, without its fields.
fn name(step: &Step) -> String {
    format!("{step:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{WhyDeleted, wait};
    use api::conditions::reasons;

    #[test]
    fn decisions_are_counted_by_answer_and_reason_and_not_by_object() {
        let metrics = Metrics::default();
        let decisions = Decisions::new(&metrics);
        let delete = |name: &str| Plan::Do(Step::DeleteMachine { name: name.to_owned(), why: WhyDeleted::Surplus });
        let plans = [Plan::Steady, delete("a"), delete("b"), Plan::Do(Step::RemoveFinalizer)];
        plans.iter().for_each(|plan| decisions.count("1", plan));
        decisions.count("2", &wait(reasons::WAITING_FOR_MEMBER, "Machine demo-etcd-0 is not a member yet"));
        let text = metrics.text().unwrap();
        let expected = [
            ("steady", "", 1),
            ("do", "DeleteMachine", 2),
            ("do", "RemoveFinalizer", 1),
            ("wait", "WaitingForMember", 1),
        ];
        for (answer, reason, count) in expected {
            let labels = format!("answer=\"{answer}\",reason=\"{reason}\"");
            let line = format!("etcdadm_provider_etcd_decisions_total{{{labels}}} {count}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        assert_eq!(text.matches("etcd_decisions_total{").count(), expected.len(), "{text}");
    }

    #[test]
    fn of_each_object_the_last_decision_is_known_until_it_is_gone() {
        let decisions = Decisions::new(&Metrics::default());
        let latest = decisions.latest.clone();
        let of = |uid: &str| latest.of(uid).map(|Answer { answer, reason }| format!("{answer} {reason}"));
        assert_eq!(of("1"), None);
        decisions.count("1", &Plan::Steady);
        decisions.count("2", &Plan::Steady);
        decisions.count("2", &wait(reasons::WAITING_FOR_MEMBER, "Machine demo-etcd-0 is not a member yet"));
        assert_eq!((of("1").as_deref(), of("2").as_deref()), (Some("steady "), Some("wait WaitingForMember")));
        latest.retain(|uid| uid == "2");
        assert_eq!((of("1"), of("2").is_some()), (None, true));
    }
}
