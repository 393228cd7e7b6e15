//! The second look. A step that takes something away is decided twice: the second time from live state, right before it
//! is done. Lifting the fence of an operation is such a step too.

use super::{Plan, Step, wait};
use api::conditions::reasons;
use std::time::Duration;

/// Whether a plan has to be made again from live state.
#[must_use]
pub fn is_fenced(plan: &Plan) -> bool {
    matches!(plan, Plan::Do(step) if step.is_fenced())
}

/// The answer in place of the live plan, if the live plan asks for another dangerous step than the one that was
/// planned: nothing is done, and everything is decided again. A live plan that takes nothing away stands.
#[must_use]
pub fn called_off(planned: &Plan, live: &Plan) -> Option<Plan> {
    (live != planned && is_fenced(live)).then(|| {
        let message = "the live state asks for another step than the cached one; planning again in 1 s";
        wait(reasons::WAITING_FOR_SAFE_REMOVAL, message).again(Duration::from_secs(1))
    })
}

/// The answer in place of a step that was not done because it was outdated. From a planned removal that has not failed,
/// the status would conclude that etcd has carried it out, and at our request.
#[must_use]
pub(crate) fn outdated(step: &Step) -> Option<Plan> {
    matches!(step, Step::RemoveMember(_)).then(|| {
        let message = "the member list has changed since the removal was decided on; planning again in 1 s";
        wait(reasons::WAITING_FOR_SAFE_REMOVAL, message).again(Duration::from_secs(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, id};
    use api::etcd_cluster::RemovalState;

    /// The plan that removes one of two learners, whose Machine is being deleted.
    fn removal(learner: usize) -> Plan {
        let mut story = Story::with_voters(5, 3);
        for index in 3..5 {
            story.machine(index);
            story.member(index, true);
        }
        story.delete(learner);
        story.settle();
        story.plan()
    }

    #[test]
    fn a_removal_that_was_not_done_does_not_stand_in_the_plan() {
        let plan = removal(3);
        let Plan::Do(step) = &plan else { panic!("{plan:?}") };
        assert!(matches!(outdated(step), Some(Plan::Wait(_))));
        assert_eq!(outdated(&Step::RemoveFinalizer), None, "of others nothing follows");
    }

    #[test]
    fn a_dangerous_step_is_done_only_if_it_comes_out_the_same_live() {
        let (one, same, other) = (removal(3), removal(3), removal(4));
        assert!(matches!(&one, Plan::Do(Step::RemoveMember(permission)) if permission.member_id() == id(3)), "{one:?}");
        assert_eq!(called_off(&one, &same), None);
        assert!(matches!(called_off(&one, &other), Some(Plan::Wait(_))));
        assert_eq!(called_off(&one, &Plan::Steady), None, "what takes nothing away stands");
    }

    #[test]
    fn the_fence_of_an_operation_is_lifted_by_a_second_look_alone() {
        let off = || Plan::Do(Step::Finish(None));
        assert!(is_fenced(&off()), "the list that is known may be from before the last call ended");
        assert_eq!(called_off(&off(), &off()), None);
        let done = Plan::Do(Step::Finish(Some(RemovalState::Removed)));
        assert_eq!(called_off(&off(), &done), None, "etcd has done it");
        let unknown = wait(reasons::MEMBERSHIP_UNKNOWN, "nobody answers");
        assert_eq!(called_off(&off(), &unknown), None, "how it ended is not known, and so it stays");
        assert!(matches!(called_off(&off(), &removal(3)), Some(Plan::Wait(_))), "it may go on, after another look");
        assert!(!is_fenced(&done), "whoever is gone never comes back under that ID");
    }
}
