//! What may stay unwritten between one step and the next, and what a kill there must not cost.

use crate::fixture::Story;
use crate::observation::Membership;
use crate::plan::{Plan, Step, plan};
use crate::status::{can_wait, status};

#[test]
fn between_two_steps_only_what_could_be_lost_is_written() {
    let mut story = Story::with_voters(3, 1);
    story.settle();
    let waits = |story: &Story| {
        let decision = plan(&story.observation);
        let after = status(&story.observation, &decision, None);
        (can_wait(story.observation.etcd.status.as_ref(), &after, &decision.next), decision.next)
    };
    let (creating, step) = waits(&story);
    assert!(creating && matches!(step, Plan::Do(Step::CreateMachine { .. })), "words alone: {step:?}");
    story.machine(1);
    story.voter(1);
    let (publishing, step) = waits(&story);
    assert!(matches!(step, Plan::Do(Step::PublishInit { .. })), "{step:?}");
    assert!(!publishing, "a new manager would not know the second voter if the list could not be read");
    story.settle();
    assert!(waits(&story).0, "now it is known");
    story.publish();
    story.voter(1);
    story.delete(1);
    story.observation.membership = Membership::NotAsked;
    assert!(!waits(&story).0, "what is waited for is told at once");
}

#[test]
fn what_is_published_for_joining_members_does_not_follow_an_older_memory() {
    let mut story = Story::with_voters(3, 1);
    story.settle();
    story.machine(1);
    story.voter(1);
    // A kill right after this leaves a status that has one voter.
    story.publish();
    story.unlisted();
    let next = plan(&story.observation).next;
    assert!(!matches!(next, Plan::Do(Step::PublishInit { .. })), "{next:?}");
}
