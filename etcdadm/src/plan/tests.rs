use proptest::prelude::*;
use rstest::rstest;

use super::*;

const OWN_URL: &str = "https://10.0.0.3:2380";
const CLUSTER: u64 = 0xc1;
const OWN: u64 = 0x33;

fn member(id: u64, name: &str, url: &str, learner: bool) -> Member {
    Member { id, name: name.to_owned(), peer_urls: vec![url.to_owned()], client_urls: Vec::new(), learner }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Absent,
    Unstarted { learner: bool },
    Started { learner: bool },
}

fn record(cluster_id: u64, member_id: u64) -> MemberRecord {
    MemberRecord { cluster_id, member_id, name: "own".into(), peer_url: OWN_URL.into() }
}

fn observation(own: Own, has_data: bool, unit: UnitState, record: Option<MemberRecord>) -> Observation {
    let mut members = vec![member(0x11, "first", "https://10.0.0.1:2380", false)];
    match own {
        Own::Absent => {}
        Own::Unstarted { learner } => members.push(member(OWN, "", OWN_URL, learner)),
        Own::Started { learner } => members.push(member(OWN, "own", OWN_URL, learner)),
    }
    Observation {
        own_url: OWN_URL.to_owned(),
        local: Local { has_data, unit, record },
        membership: Membership { cluster_id: CLUSTER, members },
        as_learner: true,
    }
}

const LEARNER: bool = true;
const VOTER: bool = false;
const DATA: bool = true;
const NO_DATA: bool = false;

/// Every point at which a join can have been interrupted, and what a further run does.
#[rstest]
#[case::nothing_done(Own::Absent, NO_DATA, UnitState::Down, JoinStep::Add { learner: true })]
#[case::added(Own::Unstarted { learner: LEARNER }, NO_DATA, UnitState::Down, JoinStep::Start(OWN))]
#[case::start_ordered(Own::Unstarted { learner: LEARNER }, NO_DATA, UnitState::Up, JoinStep::AwaitStart(OWN))]
#[case::running(Own::Unstarted { learner: LEARNER }, DATA, UnitState::Up, JoinStep::AwaitStart(OWN))]
#[case::stopped_early(Own::Unstarted { learner: LEARNER }, DATA, UnitState::Down, JoinStep::Start(OWN))]
#[case::published(Own::Started { learner: LEARNER }, DATA, UnitState::Up, JoinStep::Promote(OWN))]
#[case::stopped(Own::Started { learner: LEARNER }, DATA, UnitState::Down, JoinStep::Start(OWN))]
#[case::promoted(Own::Started { learner: VOTER }, DATA, UnitState::Up, JoinStep::AwaitHealth(OWN))]
#[case::voter_stopped(Own::Started { learner: VOTER }, DATA, UnitState::Down, JoinStep::Start(OWN))]
#[case::voter_added(Own::Unstarted { learner: VOTER }, NO_DATA, UnitState::Down, JoinStep::Start(OWN))]
#[case::voter_running(Own::Unstarted { learner: VOTER }, DATA, UnitState::Up, JoinStep::AwaitStart(OWN))]
#[case::learner_lost_data(Own::Started { learner: LEARNER }, NO_DATA, UnitState::Down, JoinStep::RemoveOwnLearner(OWN))]
fn an_interrupted_join_goes_on(#[case] own: Own, #[case] data: bool, #[case] unit: UnitState, #[case] step: JoinStep) {
    assert_eq!(join(&observation(own, data, unit, None)), step);
}

#[test]
fn old_versions_join_as_voters() {
    let mut seen = observation(Own::Absent, NO_DATA, UnitState::Down, None);
    seen.as_learner = false;
    assert_eq!(join(&seen), JoinStep::Add { learner: false });
}

fn refusal(seen: &Observation) -> String {
    match join(seen) {
        JoinStep::Refuse(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_voter_that_lost_its_data_is_left_to_be_repaired() {
    let seen = observation(Own::Started { learner: VOTER }, NO_DATA, UnitState::Down, None);
    assert!(refusal(&seen).contains("must be removed from the cluster"), "{}", refusal(&seen));
}

#[test]
fn data_of_another_cluster_is_never_touched() {
    let seen = observation(Own::Absent, DATA, UnitState::Up, Some(record(0xdead, OWN)));
    assert!(refusal(&seen).contains("member 33 of cluster dead"), "{}", refusal(&seen));
    // Without data, what is remembered of another cluster is only history.
    let seen = observation(Own::Absent, NO_DATA, UnitState::Down, Some(record(0xdead, OWN)));
    assert_eq!(join(&seen), JoinStep::Add { learner: true });
}

#[test]
fn data_of_a_removed_member_is_never_touched() {
    let seen = observation(Own::Absent, DATA, UnitState::Down, Some(record(CLUSTER, OWN)));
    assert!(refusal(&seen).contains("the member was removed"), "{}", refusal(&seen));
}

#[test]
fn a_member_whose_address_changed_is_told_so() {
    let mut seen = observation(Own::Absent, DATA, UnitState::Up, Some(record(CLUSTER, OWN)));
    seen.membership.members.push(member(OWN, "own", "https://10.0.0.99:2380", false));
    assert!(refusal(&seen).contains("https://10.0.0.99:2380"), "{}", refusal(&seen));
}

#[rstest]
#[case(NO_DATA, UnitState::Down, false, Some(InitStep::StartNew))]
#[case(NO_DATA, UnitState::Up, false, Some(InitStep::AwaitHealth))]
#[case(DATA, UnitState::Down, false, Some(InitStep::StartAgain))]
#[case(DATA, UnitState::Down, true, Some(InitStep::StartAgain))]
#[case(DATA, UnitState::Up, true, Some(InitStep::AwaitHealth))]
#[case::would_fork_the_cluster(NO_DATA, UnitState::Down, true, None)]
fn an_interrupted_init_goes_on(
    #[case] has_data: bool,
    #[case] unit: UnitState,
    #[case] recorded: bool,
    #[case] step: Option<InitStep>,
) {
    let record = recorded.then(|| record(CLUSTER, OWN));
    let decided = init(&Local { has_data, unit, record });
    match step {
        Some(step) => assert_eq!(decided, step),
        None => assert!(matches!(decided, InitStep::Refuse(_)), "{decided:?}"),
    }
}

fn any_own() -> impl Strategy<Value = Own> {
    prop_oneof![
        Just(Own::Absent),
        any::<bool>().prop_map(|learner| Own::Unstarted { learner }),
        any::<bool>().prop_map(|learner| Own::Started { learner }),
    ]
}

fn any_observation() -> impl Strategy<Value = (Own, Observation)> {
    let unit = prop_oneof![Just(UnitState::Up), Just(UnitState::Down)];
    let recorded = proptest::option::of((prop_oneof![Just(CLUSTER), Just(0xdead)], prop_oneof![Just(OWN), Just(0x99)]));
    (any_own(), any::<bool>(), unit, recorded, any::<bool>()).prop_map(|(own, data, unit, recorded, as_learner)| {
        let record = recorded.map(|(cluster_id, member_id)| record(cluster_id, member_id));
        let mut seen = observation(own, data, unit, record);
        seen.as_learner = as_learner;
        (own, seen)
    })
}

proptest! {
    /// A member is added only by a machine that is none and has no data, and only a lost learner is removed.
    #[test]
    fn membership_changes_only_where_it_is_safe((own, seen) in any_observation()) {
        match join(&seen) {
            JoinStep::Add { .. } => prop_assert!(own == Own::Absent && !seen.local.has_data),
            JoinStep::RemoveOwnLearner(id) => {
                prop_assert_eq!(id, OWN);
                prop_assert!(!seen.local.has_data && seen.local.unit == UnitState::Down);
                prop_assert_eq!(own, Own::Started { learner: true });
            }
            JoinStep::Promote(id) => {
                prop_assert_eq!(id, OWN);
                prop_assert_eq!(own, Own::Started { learner: true });
            }
            JoinStep::AwaitHealth(id) => {
                prop_assert_eq!(id, OWN);
                prop_assert_eq!(own, Own::Started { learner: false });
            }
            _ => {}
        }
    }

    /// Carried out on a cluster and machine that do as they are told, the steps end with a started voter that runs,
    /// from whatever state they begin, unless the first one is refused.
    #[test]
    fn every_path_ends((_, start) in any_observation()) {
        let mut seen = start;
        for taken in 0..8 {
            let own = seen.membership.members.iter().position(|m| m.id == OWN);
            let step = join(&seen);
            match step {
                JoinStep::Add { learner } => {
                    seen.membership.members.push(member(OWN, "", OWN_URL, learner));
                    // A cluster never gives an ID twice.
                    seen.local.record = None;
                }
                JoinStep::RemoveOwnLearner(_) => drop(seen.membership.members.remove(own.unwrap())),
                JoinStep::Start(_) => {
                    seen.local.unit = UnitState::Up;
                    seen.local.record = Some(record(CLUSTER, OWN));
                }
                JoinStep::AwaitStart(_) => {
                    seen.local.has_data = true;
                    seen.membership.members[own.unwrap()].name = "own".to_owned();
                    // A record of another cluster with data at hand is refused, but none is left by a start of ours.
                    seen.local.record = Some(record(CLUSTER, OWN));
                }
                JoinStep::Promote(_) => seen.membership.members[own.unwrap()].learner = false,
                JoinStep::AwaitHealth(_) => return Ok(()),
                JoinStep::Refuse(_) => {
                    prop_assert_eq!(taken, 0);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "no end: {:?}", seen);
    }
}
