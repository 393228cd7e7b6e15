//! Machines that this EtcdCluster does not control. After a restore that has created all objects again, the members run
//! on Machines whose owner reference names an earlier EtcdCluster. Nothing is made in their place, and they are not
//! reported as gone.

use super::{Plan, View, block};
use api::conditions::reasons;
use api::names;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let others = &view.observation.not_owned;
    (!others.is_empty()).then(|| {
        let message = format!(
            "Machines {} have label {} of this EtcdCluster, and are not controlled by it: they may carry its members. Nothing is added beside them. Restore the objects with their UIDs, or take the label from Machines that are not part of this etcd",
            others.join(", "),
            names::ETCD_CLUSTER_LABEL
        );
        block(reasons::MACHINES_NOT_OWNED, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;

    #[test]
    fn members_on_machines_of_an_earlier_object_are_not_given_up() {
        let mut story = Story::with_voters(3, 3);
        story.settle();
        for index in 0..3 {
            story.gone(index);
        }
        story.unlisted();
        assert!(matches!(story.plan(), Plan::Block(hold) if hold.reason == reasons::QUORUM_LOST));
        story.observation.not_owned = vec!["demo-etcd-0".to_owned()];
        let plan = story.plan();
        let Plan::Block(hold) = &plan else { panic!("{plan:?}") };
        assert_eq!(hold.reason, reasons::MACHINES_NOT_OWNED);
        assert!(hold.message.starts_with("Machines demo-etcd-0 have label"), "{}", hold.message);
    }

    #[test]
    fn a_learner_on_such_a_machine_stays() {
        let mut story = Story::with_voters(3, 2);
        story.machine(2);
        story.member(2, true);
        story.settle();
        story.gone(2);
        story.observation.not_owned = vec!["demo-etcd-2".to_owned()];
        let plan = story.plan();
        assert!(matches!(&plan, Plan::Block(hold) if hold.reason == reasons::MACHINES_NOT_OWNED), "{plan:?}");
        story.observation.not_owned.clear();
        assert!(
            matches!(story.plan(), Plan::Do(_)),
            "its Machine is gone, and it never had a vote: {:?}",
            story.plan()
        );
    }
}
