//! Machines on their way: what is waited for, and for how long.

use super::{admits, creates, reason};
use crate::fixture::{Story, name};
use crate::observation::probe::{MemberFault, OurFault};
use crate::observation::{Outcome, Template};
use crate::plan::{Plan, Step, due};
use api::conditions::reasons;
use api::etcd_cluster::RolloutType;
use api::names;

#[test]
fn a_slow_boot_is_waited_for_and_a_dead_one_is_passed_by() {
    let mut story = Story::with_voters(5, 1);
    story.takes_one_learner();
    story.pass(10_000);
    (1..5).for_each(|index| story.held_back(index));
    story.pass(10_000);
    story.admit(1);
    story.address(1);
    story.pass(90);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MEMBER, "its grace began when it was admitted");
    story.pass(510);
    assert_eq!(admits(&story.plan()), Some("demo-etcd-2"), "the dead one is not a member, so the next is safe");
    for index in 2..5 {
        story.admit(index);
        story.address(index);
        story.voter(index);
    }
    story.publish();
    assert_eq!(reason(&story.plan()), reasons::MACHINE_NOT_BOOTING, "no Machine beyond the wanted number");
}

#[test]
fn a_machine_that_gets_no_bootstrap_data_is_passed_by_like_one_that_does_not_boot() {
    let mut story = Story::with_voters(3, 1);
    story.takes_one_learner();
    story.held_back(1);
    story.held_back(2);
    story.pass(10_000);
    story.admit(1);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS);
    story.pass(600);
    assert_eq!(admits(&story.plan()), Some("demo-etcd-2"));
}

#[test]
fn a_machine_that_was_never_admitted_is_not_late() {
    let mut story = Story::new(3);
    (0..3).for_each(|index| story.held_back(index));
    story.bootstrap(0);
    story.pass(3_600);
    assert_eq!(reason(&story.plan()), reasons::MACHINE_NOT_BOOTING);
    story.delete_at_once(0);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS, "its user has deleted the dead one");
    story.observation.machines.remove(&name(0));
    story.observation.bootstrapped.remove(&name(0));
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS);
    story.bootstrap(1);
    assert_eq!(creates(&story.plan()), Some(3));
    story.held_back(3);
    story.pass(599);
    assert_eq!(reason(&story.plan()), reasons::WAITING_FOR_MACHINE_ADDRESS, "its grace began with its data");
    story.pass(1);
    assert_eq!(reason(&story.plan()), reasons::MACHINE_NOT_BOOTING);
}

#[test]
fn a_machine_that_is_held_back_is_made_again_from_a_corrected_spec() {
    let deletes = |story: &Story| match story.plan() {
        Plan::Do(Step::DeleteHeldBack { name, .. }) => Some(name),
        _ => None,
    };
    // The first Machine does not boot. The person who corrects the spec deletes it.
    let mut story = Story::new(3);
    (0..3).for_each(|index| story.held_back(index));
    story.bootstrap(0);
    assert_eq!(deletes(&story), None);
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.15".to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.15");
    for index in 1..3 {
        assert_eq!(deletes(&story), Some(name(index)));
        story.delete_at_once(index);
    }
    assert_eq!(deletes(&story), None, "the one that has its data may be a member any moment");
    // If the first Machine has gone already, the next one is made again before it initializes etcd.
    let mut story = Story::new(3);
    (1..3).for_each(|index| story.held_back(index));
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.15".to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.15");
    assert_eq!(deletes(&story), Some(name(1)));
    // Beside voters, a Machine is made again before it is admitted.
    let mut story = Story::with_voters(3, 1);
    story.held_back(1);
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.15".to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.15");
    assert_eq!(deletes(&story), Some(name(1)));
    story
        .observation
        .machines
        .get_mut(&name(1))
        .unwrap()
        .annotations
        .insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
    assert_eq!((deletes(&story), creates(&story.plan())), (None, Some(2)), "a person keeps it: {:?}", story.plan());
    story.etcd().spec.rollout_strategy.type_ = RolloutType::OnDelete;
    story.held_back(2);
    let admitted = story.plan();
    assert_eq!(admits(&admitted), Some(&*name(2)), "{admitted:?}");
    story.voter(2);
    story.publish();
    story.settle();
    let waits = story.plan();
    assert_eq!(reason(&waits), reasons::WAITING_FOR_MEMBER);
    assert!(waits.hold().unwrap().message.contains("Machine demo-etcd-1 was made from an earlier spec and is paused"));
    story.etcd().spec.rollout_strategy.type_ = RolloutType::RollingUpdate;
    story.observation.machines.get_mut(&name(1)).unwrap().annotations.remove(names::PAUSED_ANNOTATION);
    story.observation.template = Template::NotFound("it does not exist".to_owned());
    assert_eq!(deletes(&story), None, "none could be made in its place");
    story.observation.template = Story::new(3).observation.template;
    story.observation.init_version = None;
    assert_eq!(deletes(&story), None, "who is admitted is not known");
    story.publish();
    story.admit(1);
    assert_eq!(deletes(&story), None);
}

#[test]
fn a_learner_that_never_gets_on_is_reported_first() {
    let mut story = Story::with_voters(3, 1);
    story.takes_one_learner();
    story.pass(1_000);
    story.machine(1);
    story.held_back(2);
    story.member(1, true);
    story.failing(1, "down");
    let again = |story: &Story| due(&story.observation, &story.plan()).map(|again| again.as_secs());
    assert_eq!(again(&story), Some(600), "its grace ends");
    story.pass(599);
    assert_eq!(again(&story), Some(1));
    story.pass(1);
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Wait(hold) if hold.message.contains("still a learner")), "{plan:?}");
    assert_eq!(again(&story), Some(600), "then it is replaced");
}

#[test]
fn a_dead_first_machine_is_only_reported() {
    let mut story = Story::new(3);
    story.machine(0);
    story.held_back(1);
    story.pass(3_600);
    assert_eq!(reason(&story.plan()), reasons::MACHINE_NOT_BOOTING, "nobody is admitted, and no Machine is made");
}

#[test]
fn a_closed_port_is_told_with_its_address_and_the_deadline() {
    let mut story = Story::with_voters(3, 1);
    story.takes_one_learner();
    story.machine(1);
    story.held_back(2);
    story.probe(1, Outcome::MemberFault(MemberFault::Refused));
    let plan = story.plan();
    let message = &plan.hold().unwrap().message;
    let until = "if this is still so at 1970-01-01T00:26:40Z, the reason becomes MachineNotBooting";
    for part in ["demo-etcd-1", "https://10.0.0.2:2379", "connection refused", until] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
}

/// A time that moved would cause a write of the status in every reconcile.
#[test]
fn it_is_told_since_when_and_that_stays_so() {
    let joining = || {
        let mut story = Story::with_voters(3, 1);
        story.takes_one_learner();
        story
    };
    let mut without_address = joining();
    (1..3).for_each(|index| without_address.held_back(index));
    without_address.pass(100);
    without_address.admit(1);
    let mut closed = joining();
    closed.machine(1);
    closed.held_back(2);
    closed.pass(20);
    closed.observation.probes.remove(&name(1));
    closed.probe(1, Outcome::MemberFault(MemberFault::Refused));
    let mut learner = joining();
    learner.machine(1);
    learner.held_back(2);
    learner.pass(20);
    learner.member(1, true);
    learner.healthy(1);
    let message = |story: &Story| story.plan().hold().unwrap().message.clone();
    for (mut story, since) in [
        (without_address, "Machine demo-etcd-1 has no address yet (it was created at 1970-01-01T00:16:40Z); look"),
        (closed, "etcd does not listen (since 1970-01-01T00:17:00Z); if this is still so at 1970-01-01T00:26:40Z"),
        (learner, "member demo-etcd-1 is a learner (its Machine could boot at 1970-01-01T00:16:40Z); if it is"),
    ] {
        let told = message(&story);
        assert!(told.contains(since), "{since} is missing in {told}");
        story.pass(60);
        assert_eq!(message(&story), told);
    }
}

/// The fault that keeps this controller from asking has not lasted for as long as the earlier result.
#[test]
fn no_time_is_told_of_a_check_that_says_something_else_than_those_before() {
    let mut story = Story::with_voters(3, 1);
    story.takes_one_learner();
    story.machine(1);
    story.held_back(2);
    story.pass(20);
    story.probe(1, Outcome::OurFault(OurFault::FileDescriptors));
    let message = story.plan().hold().unwrap().message.clone();
    assert!(message.contains("is not a member yet: https://10.0.0.2:2379: this controller is out of"), "{message}");
    assert!(!message.contains("(since"), "{message}");
}

#[test]
fn a_port_that_stays_closed_is_told_when_the_grace_is_over_too() {
    let refused = || Outcome::MemberFault(MemberFault::Refused);
    // The first Machine is waited for, because without it there is nothing to join. A later one is passed over. A
    // learner is waited for.
    let mut first = Story::new(3);
    first.machine(0);
    let mut later = Story::with_voters(3, 2);
    later.machine(2);
    let mut learner = Story::with_voters(3, 2);
    learner.machine(2);
    learner.member(2, true);
    for (mut story, index, url) in [
        (first, 0, "https://10.0.0.1:2379"),
        (later, 2, "https://10.0.0.3:2379"),
        (learner, 2, "https://10.0.0.3:2379"),
    ] {
        story.pass(20);
        story.observation.probes.remove(&name(index));
        story.probe(index, refused());
        story.pass(600);
        let plan = story.plan();
        let message = &plan.hold().unwrap().message;
        let since = ["since 1970-01-01T00:17:00Z", "could boot at 1970-01-01T00:16:40Z"];
        let grace = "600 s (spec.healthCheck.startupGraceSeconds)";
        for part in [name(index).as_str(), url, "connection refused", since[0], since[1], grace] {
            assert!(message.contains(part), "{part} is missing in {message}");
        }
    }
}
