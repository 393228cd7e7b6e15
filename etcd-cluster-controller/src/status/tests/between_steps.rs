//! Which statuses may stay unwritten for a moment, and that a kill in that moment loses nothing.

use crate::fixture::{Story, name};
use crate::observation::Membership;
use crate::plan::{Decision, Plan, Step, block, plan, wait};
use crate::status::{can_wait, status};
use api::conditions::reasons;
use api::etcd_cluster::{EtcdClusterStatus, Health};
use controller_support::external::Ready;

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
fn only_other_words_for_what_is_waited_for_can_wait() {
    let story = Story::with_voters(3, 2);
    let after = |next: Plan| {
        let decision = Decision { next, ..plan(&story.observation) };
        (status(&story.observation, &decision, None), decision.next)
    };
    let waits = |written: Option<&EtcdClusterStatus>, next: Plan| {
        let (after, next) = after(next);
        can_wait(written, &after, &next)
    };
    let waiting = |message: &str| wait(reasons::WAITING_FOR_MEMBER, message);
    let (written, _) = after(waiting("1 of 3"));
    assert!(!waits(None, waiting("1 of 3")), "nothing is said yet");
    assert!(!waits(Some(&written), waiting("1 of 3")), "there is nothing to write");
    assert!(waits(Some(&written), waiting("2 of 3")));
    assert!(!waits(Some(&written), block(reasons::WAITING_FOR_MEMBER, "2 of 3")), "a person is to act");
    assert!(!waits(Some(&written), Plan::Steady));
    let earlier = EtcdClusterStatus { observed_generation: Some(0), ..written.clone() };
    assert!(!waits(Some(&earlier), waiting("2 of 3")), "somebody waits for the generation to be seen");
    let mut other = written.clone();
    other.conditions[0].status = "Unknown".to_owned();
    assert!(!waits(Some(&other), waiting("2 of 3")), "a state has changed");
    let mut fewer = written;
    fewer.members.pop();
    assert!(!waits(Some(&fewer), waiting("2 of 3")), "a new manager would not know the second voter");
}

#[test]
fn what_machines_say_of_themselves_can_wait() {
    let mut story = Story::with_voters(3, 3);
    let written = story.settle();
    let waits = |story: &Story| {
        let decision = plan(&story.observation);
        assert!(!matches!(decision.next, Plan::Do(_)), "{:?}", decision.next);
        let after = status(&story.observation, &decision, None);
        can_wait(Some(&written), &after, &decision.next)
    };
    assert!(!waits(&story), "there is nothing to write");
    let off = Ready { status: Some(false), message: "it is off".to_owned() };
    story.observation.machines.get_mut(&name(0)).unwrap().ready = Some(off);
    assert!(waits(&story));
    story.failing(1, "down");
    assert!(!waits(&story), "a member has begun to fail");
}

#[test]
fn how_large_databases_are_and_that_the_first_endpoints_are_in_use_can_wait() {
    let mut story = Story::with_voters(3, 3);
    let written = story.settle();
    let mut in_use = written.clone();
    in_use.endpoints_in_use = "https://10.0.0.9:2379".to_owned();
    let waits = |written: &EtcdClusterStatus, change: &dyn Fn(&mut EtcdClusterStatus), next: &Plan| {
        let mut after = written.clone();
        change(&mut after);
        can_wait(Some(written), &after, next)
    };
    type Change = fn(&mut EtcdClusterStatus);
    let changes: [(&str, bool, Change); 4] = [
        ("size", true, |after| after.members[0].database_size_bytes = Some(42)),
        ("health", false, |after| after.members[0].health = Health::Unknown),
        ("leader", false, |after| after.members[0].leader = !after.members[0].leader),
        ("endpoints", false, |after| after.endpoints = "https://10.0.0.1:2379".to_owned()),
    ];
    let used = |after: &mut EtcdClusterStatus| after.endpoints_in_use = "https://10.0.0.1:2379".to_owned();
    for next in [Plan::Steady, wait(reasons::WAITING_FOR_MEMBER, "1 of 3")] {
        for (what, can, change) in changes {
            assert_eq!(waits(&written, &change, &next), can, "{what}, {next:?}");
        }
        assert!(waits(&written, &used, &next), "the first list");
        assert!(!waits(&in_use, &used, &next), "of an object that is replaced now, the list before would be left");
    }
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
