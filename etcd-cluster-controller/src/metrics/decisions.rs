//! What plans have answered, for all clusters together.

use crate::plan::{Plan, Step};
use controller_support::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    answer: &'static str,
    reason: String,
}

/// Counts decisions.
pub(crate) struct Decisions(Family<Labels, Counter>);

impl Decisions {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let decisions = Family::default();
        metrics.register("decisions", |registry| {
            registry.register("etcd_decisions", "Decisions by answer and reason", decisions.clone());
        });
        Self(decisions)
    }

    /// Counts what one reconcile has come to.
    pub(crate) fn count(&self, plan: &Plan) {
        let (answer, reason) = match plan {
            Plan::Steady => ("steady", String::new()),
            Plan::Wait(hold) => ("wait", hold.reason.to_owned()),
            Plan::Block(hold) => ("block", hold.reason.to_owned()),
            Plan::Do(step) => ("do", name(step)),
        };
        self.0.get_or_create(&Labels { answer, reason }).inc();
    }
}

/// The name of a step, without what is in it.
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
        plans.iter().for_each(|plan| decisions.count(plan));
        decisions.count(&wait(reasons::WAITING_FOR_MEMBER, "Machine demo-etcd-0 is not a member yet"));
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
}
