use std::net::TcpListener;

use super::*;
use crate::etcd::Member;
use crate::guard::Data;
use crate::init_system::UnitState;
use crate::node::tests::{Machine, OWNER, machine};
use crate::wal::Owner;
use rstest::rstest;

/// The member that the machine has been added as. Its ID is not that of `OWNER`.
const NEW: u64 = 0x44;

/// A machine whose earlier member was removed, and whose data and epoch were removed by hand.
fn cleaned_up(address: &str, unit: UnitState) -> Machine {
    let machine = machine(address, unit);
    crate::config::write_all(&machine.node.paths, &machine.node.settings, &Start::Again).unwrap();
    assert_eq!(machine.data(), Data::Forgotten, "etcd.env says that there was data");
    machine
}

fn run(machine: &Machine) -> Join<'_> {
    crate::set_up_tls();
    let node = &machine.node;
    node.certificates(&node.authority().unwrap().unwrap(), &local(machine)).unwrap();
    let silent = vec!["https://127.0.0.1:1".parse().unwrap()];
    let cluster = || node.cluster(&node.authority().unwrap().unwrap(), silent.clone()).unwrap();
    Join::new(node, cluster(), cluster(), true)
}

fn local(machine: &Machine) -> plan::Local {
    plan::Local {
        unit: if machine.is_up() { UnitState::Up } else { UnitState::Down },
        data: machine.data(),
        owner: None,
        record: MemberRecord::load(&machine.node.paths).unwrap(),
    }
}

fn observation(machine: &Machine) -> Observation {
    let own_url = machine.node.settings.peer_endpoint().to_string();
    let member = |id, name: &str, url: &str| Member {
        id,
        name: name.to_owned(),
        peer_urls: vec![url.to_owned()],
        client_urls: vec!["https://127.0.0.1:1".to_owned()],
        learner: false,
    };
    let members = vec![member(0x11, "first", "https://127.0.0.1:2380"), member(NEW, "", &own_url)];
    let membership = Membership { cluster_id: OWNER.cluster_id, members };
    Observation { own_name: machine.node.settings.name.clone(), own_url, local: local(machine), membership }
}

fn recorded(machine: &Machine) -> Option<u64> {
    MemberRecord::load(&machine.node.paths).unwrap().map(|record| record.member_id)
}

/// Whatever ends the run after the new member is recorded, data that an earlier member has lost must not count as the
/// new member's.
#[tokio::test]
async fn a_new_member_is_recorded_only_where_no_earlier_data_is_missed() {
    let machine = cleaned_up("127.0.77.3", UnitState::Down);
    let _taken = TcpListener::bind("127.0.77.3:2380").unwrap();
    run(&machine).start(NEW, &observation(&machine)).await.unwrap_err();
    assert_eq!((recorded(&machine), machine.data()), (Some(NEW), Data::Blank));
    assert_eq!(plan::join(&observation(&machine)), JoinStep::Start(NEW));
}

#[tokio::test]
async fn an_earlier_members_unit_is_stopped_before_the_new_one_is_recorded() {
    let machine = cleaned_up("127.0.77.4", UnitState::Up);
    run(&machine).start(NEW, &observation(&machine)).await.unwrap();
    assert_eq!((recorded(&machine), machine.told.all()), (None, vec!["stop"]));
    run(&machine).start(NEW, &observation(&machine)).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!((recorded(&machine), machine.data()), (Some(NEW), Data::Blank));
    assert_eq!(machine.told.all(), ["stop", "start"]);
}

/// The etcd that answers may be the one that is about to be stopped, and by then it would be a voter.
#[tokio::test]
async fn a_learner_counts_as_silent_until_its_restart_has_completed() {
    let machine = machine("127.0.77.16", UnitState::Up);
    let membership = observation(&machine).membership;
    let mut run = run(&machine);
    machine.node.restart();
    let why = run.follows(NEW, &membership).await.unwrap_err();
    assert!(why.contains("being restarted"), "{why}");
    while machine.node.is_restarting() {
        tokio::task::yield_now().await;
        machine.node.local().await.unwrap();
    }
    let why = run.follows(NEW, &membership).await.unwrap_err();
    assert!(!why.contains("being restarted"), "it is asked again: {why}");
}

/// Until the learner is removed, the entries that it acknowledged count.
#[tokio::test]
async fn a_lost_learner_that_was_not_removed_never_starts_again() {
    let machine = cleaned_up("127.0.77.5", UnitState::Down);
    machine.record(Owner { member_id: NEW, ..OWNER });
    let mut observation = observation(&machine);
    observation.membership.members[1].learner = true;
    assert_eq!(plan::join(&observation), JoinStep::RemoveOwnLearner(NEW));
    run(&machine).remove_own_learner(NEW, &observation.membership).await.unwrap();
    observation.local = local(&machine);
    assert_eq!(plan::join(&observation), JoinStep::RemoveOwnLearner(NEW), "nobody answered");
    observation.membership.members.pop();
    assert!(matches!(plan::join(&observation), JoinStep::Refuse(_)), "it is removed, perhaps by somebody else");
    let record = MemberRecord::load(&machine.node.paths).unwrap().unwrap();
    record.removal_confirmed().store(&machine.node.paths).unwrap();
    observation.local = local(&machine);
    assert_eq!(plan::join(&observation), JoinStep::Add, "the cluster has said that this machine has done it");
}

/// The record did not exist, or was lost with the data. Even so, the machine must know later who removed the learner.
#[tokio::test]
async fn a_lost_learner_without_a_record_is_recorded_before_it_is_removed() {
    let machine = cleaned_up("127.0.77.10", UnitState::Down);
    crate::files::write(&machine.node.paths.outer_epoch(), b"one\nbegun\n", 0o600).unwrap();
    let mut observation = observation(&machine);
    observation.membership.members[1].learner = true;
    assert_eq!(plan::join(&observation), JoinStep::RemoveOwnLearner(NEW));
    run(&machine).remove_own_learner(NEW, &observation.membership).await.unwrap();
    observation.local = local(&machine);
    assert_eq!((recorded(&machine), plan::join(&observation)), (Some(NEW), JoinStep::RemoveOwnLearner(NEW)));
    observation.membership.members.pop();
    assert!(matches!(plan::join(&observation), JoinStep::Refuse(_)), "it is removed, perhaps by somebody else");
}

#[tokio::test]
async fn members_that_are_silent_once_do_not_end_the_run() {
    let machine = machine("127.0.77.6", UnitState::Down);
    let mut observation = observation(&machine);
    observation.membership.members.pop();
    run(&machine).add(&observation.membership).await.unwrap();
}

/// A member that is added and cannot start reduces the cluster's fault tolerance.
#[tokio::test]
async fn a_machine_is_looked_at_before_it_is_added() {
    let machine = machine("127.0.77.12", UnitState::Down);
    let mut observation = observation(&machine);
    observation.membership.members.pop();
    let _taken = TcpListener::bind("127.0.77.12:2380").unwrap();
    let message = format!("{:#}", run(&machine).add(&observation.membership).await.unwrap_err());
    assert!(message.contains("port 2380"), "{message}");
}

/// etcd itself would promote such a learner.
#[tokio::test]
async fn a_learner_that_does_not_answer_is_waited_for() {
    let machine = machine("127.0.77.13", UnitState::Up);
    let why = run(&machine).follows(NEW, &observation(&machine).membership).await.unwrap_err();
    assert!(why.starts_with("for learner 44, which does not answer on this machine"), "{why}");
}

/// A machine may boot before its clock is set.
#[tokio::test]
async fn certificates_that_are_not_good_by_this_clock_are_tried_again() {
    let machine = machine("127.0.77.14", UnitState::Down);
    let untrusted = |by_clock| Failure::Untrusted { why: "not yet valid".to_owned(), by_clock };
    let run = run(&machine);
    run.wait_out("the cluster does not answer", untrusted(true), POLL).await.unwrap();
    run.wait_out("the cluster does not answer", untrusted(false), POLL).await.unwrap_err();
}

/// Any of the members may have a version that loses the promotion.
#[tokio::test]
async fn a_learner_is_not_promoted_while_no_member_tells_its_version() {
    let machine = machine("127.0.77.7", UnitState::Up);
    let mut observation = observation(&machine);
    observation.membership.members[1].learner = true;
    observation.membership.members[1].name = "own".to_owned();
    let mut run = run(&machine);
    run.retry = false;
    let message = format!("{:#}", run.may_promote(NEW, &observation.membership).await.unwrap_err());
    for named in ["the learner is not promoted", "member 11 (https://127.0.0.1:2380)", "3.5.20", "remove them"] {
        assert!(message.contains(named), "{message}");
    }
}

/// A voter that does not run reduces the cluster's fault tolerance; a learner does not.
#[tokio::test]
async fn a_member_that_somebody_has_added_starts_after_its_version_was_compared() {
    let machine = machine("127.0.77.8", UnitState::Down);
    let mut observation = observation(&machine);
    assert!(run(&machine).may_start(NEW, &observation).await.unwrap());
    observation.membership.members[1].learner = true;
    assert!(!run(&machine).may_start(NEW, &observation).await.unwrap());

    let mut in_this_run = run(&machine);
    in_this_run.told.insert(0x11, "3.5.15".parse().unwrap());
    let message = in_this_run.may_start(NEW, &observation).await.unwrap_err().to_string();
    assert!(message.contains("etcd 3.5.15"), "{message}");
    in_this_run.told.insert(0x11, machine.node.settings.version.clone());
    assert!(in_this_run.may_start(NEW, &observation).await.unwrap());
    // The run waits for the start in many short steps, and asks for no version again.
    in_this_run.told.clear();
    assert!(in_this_run.may_start(NEW, &observation).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_learner_that_catches_up_is_looked_at_less_and_less_often() {
    let machine = machine("127.0.77.9", UnitState::Up);
    let mut run = run(&machine);
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let begun = Instant::now();
        run.after_promotion(NEW, Err(Failure::NotInSync)).await.unwrap();
        pauses.push(begun.elapsed().as_millis());
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn learners_that_keep_a_machine_out_are_named() {
    let member = |id, name: &str, learner| Member {
        id,
        name: name.to_owned(),
        peer_urls: vec![format!("https://10.0.0.{id}:2380")],
        client_urls: Vec::new(),
        learner,
    };
    let members = [member(1, "m1", false), member(2, "m2", true), member(3, "", true)];
    let says = |members: &[Member]| format!("{}{}", Failure::TooManyLearners, promoted_first(members));
    assert_eq!(says(&members[..1]), "it has as many learners as it takes", "another one was added just now");
    assert_eq!(
        says(&members[..2]),
        "it has as many learners as it takes, until learner 2 (m2, https://10.0.0.2:2380) is promoted or removed"
    );
    assert_eq!(
        says(&members),
        "it has as many learners as it takes, until one of these is promoted or removed: learner 2 (m2, \
         https://10.0.0.2:2380), learner 3 (not started yet, https://10.0.0.3:2380)"
    );
}

/// Two learners that start, or are promoted, at the same time would disturb each other.
#[rstest]
#[case::start(false)]
#[case::promotion(true)]
#[tokio::test]
async fn learners_go_in_the_order_of_their_ids(#[case] started: bool) {
    let machine = machine("127.0.77.11", UnitState::Up);
    let mut observation = observation(&machine);
    let own = observation.membership.members.pop().unwrap();
    let learner = |id, started: bool| {
        let name = if started { format!("m{id}") } else { String::new() };
        Member { id, name, learner: true, ..own.clone() }
    };
    let members = |others: &[Member]| [others, &[learner(NEW, started)]].concat();
    let mut run = run(&machine);
    let lets = |run: &mut Join<'_>, others: &[Member]| match started {
        false => run.first_to_start(NEW, &members(others)),
        true => run.first_to_be_promoted(NEW, &members(others)),
    };
    assert_eq!(lets(&mut run, &[]), None);
    assert_eq!(lets(&mut run, &[learner(NEW + 1, started)]), None);
    assert_eq!(lets(&mut run, &[learner(NEW - 1, !started)]), None, "it is not as far, or further");
    assert_eq!((run.lets_start, run.lets_be_promoted), (None, None), "nobody has been waited for");
    let others = [learner(NEW - 1, started), learner(NEW + 1, started)];
    assert_eq!(lets(&mut run, &others), Some(NEW - 1));
    let long_ago = Instant::now().checked_sub(TURN);
    (run.lets_start, run.lets_be_promoted) = (long_ago, long_ago);
    assert_eq!(lets(&mut run, &others), None, "it has been waited for long enough");
}
