use proptest::prelude::*;
use rstest::rstest;

use super::*;

const OWN_URL: &str = "https://10.0.0.3:2380";
const CLUSTER: u64 = 0xc1;
const OWN: u64 = 0x33;
/// A member whose machine had this machine's address before.
const FORMER: u64 = 0x22;

fn member(id: u64, name: &str, url: &str, learner: bool) -> Member {
    Member { id, name: name.to_owned(), peer_urls: vec![url.to_owned()], client_urls: Vec::new(), learner }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    Absent,
    Unstarted {
        learner: bool,
    },
    Started {
        learner: bool,
    },
    /// The member of another machine, which had this machine's address before.
    Former {
        learner: bool,
    },
}

fn record(cluster_id: u64, member_id: u64) -> MemberRecord {
    MemberRecord::of(cluster_id, member_id, "own".into(), OWN_URL.into())
}

/// The record of a disowned member whose removal the cluster has confirmed.
fn removal_confirmed(member_id: u64) -> MemberRecord {
    record(0, member_id).removal_confirmed()
}

fn owner(cluster_id: u64, member_id: u64) -> Owner {
    Owner { cluster_id, member_id }
}

fn local(data: Data, unit: UnitState, record: Option<MemberRecord>) -> Local {
    let owner = matches!(data, Data::Present | Data::Outdated).then(|| owner(CLUSTER, OWN));
    Local { data, owner, unit, record }
}

fn observation(own: Own, data: Data, unit: UnitState, record: Option<MemberRecord>) -> Observation {
    let mut members = vec![member(0x11, "first", "https://10.0.0.1:2380", false)];
    match own {
        Own::Absent => {}
        Own::Unstarted { learner } => members.push(member(OWN, "", OWN_URL, learner)),
        Own::Started { learner } => members.push(member(OWN, "own", OWN_URL, learner)),
        Own::Former { learner } => members.push(member(FORMER, "former", OWN_URL, learner)),
    }
    Observation {
        own_name: "own".to_owned(),
        own_url: OWN_URL.to_owned(),
        local: local(data, unit, record),
        membership: Membership { cluster_id: CLUSTER, members },
    }
}

const LEARNER: bool = true;
const VOTER: bool = false;
const DATA: Data = Data::Present;
const NO_DATA: Data = Data::Blank;
const LOST: Data = Data::Lost;
const FORGOTTEN: Data = Data::Forgotten;
const UP: UnitState = UnitState::Up;
const DOWN: UnitState = UnitState::Down;

/// Every point at which a join can have been interrupted, and what a further run does.
#[rstest]
#[case::nothing_done(Own::Absent, NO_DATA, DOWN, JoinStep::Add)]
#[case::added(Own::Unstarted { learner: LEARNER }, NO_DATA, DOWN, JoinStep::Start(OWN))]
#[case::start_ordered(Own::Unstarted { learner: LEARNER }, NO_DATA, UP, JoinStep::Start(OWN))]
#[case::running(Own::Unstarted { learner: LEARNER }, DATA, UP, JoinStep::AwaitStart(OWN))]
#[case::stopped_early(Own::Unstarted { learner: LEARNER }, DATA, DOWN, JoinStep::Start(OWN))]
#[case::published(Own::Started { learner: LEARNER }, DATA, UP, JoinStep::Promote(OWN))]
#[case::stopped(Own::Started { learner: LEARNER }, DATA, DOWN, JoinStep::Start(OWN))]
#[case::promoted(Own::Started { learner: VOTER }, DATA, UP, JoinStep::AwaitHealth(OWN))]
#[case::voter_stopped(Own::Started { learner: VOTER }, DATA, DOWN, JoinStep::Start(OWN))]
#[case::voter_added(Own::Unstarted { learner: VOTER }, NO_DATA, DOWN, JoinStep::Start(OWN))]
#[case::voter_running(Own::Unstarted { learner: VOTER }, DATA, UP, JoinStep::AwaitStart(OWN))]
#[case::learner_lost_data(Own::Started { learner: LEARNER }, NO_DATA, DOWN, JoinStep::RemoveOwnLearner(OWN))]
#[case::learner_lost_data_in_a_crash_loop(Own::Started { learner: LEARNER }, LOST, UP, JoinStep::RemoveOwnLearner(OWN))]
#[case::cleaned_up(Own::Absent, FORGOTTEN, DOWN, JoinStep::Add)]
#[case::added_after_the_cleaning_up(Own::Unstarted { learner: LEARNER }, FORGOTTEN, DOWN, JoinStep::Start(OWN))]
fn an_interrupted_join_goes_on(#[case] own: Own, #[case] data: Data, #[case] unit: UnitState, #[case] step: JoinStep) {
    assert_eq!(join(&observation(own, data, unit, None)), step);
}

fn refusal(observation: &Observation) -> String {
    match join(observation) {
        JoinStep::Refuse(why) => why,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case(NO_DATA, DOWN)]
#[case(NO_DATA, UP)]
#[case(LOST, DOWN)]
#[case::in_a_crash_loop(LOST, UP)]
fn a_voter_that_lost_its_data_is_left_to_be_repaired(#[case] data: Data, #[case] unit: UnitState) {
    let observation = observation(Own::Started { learner: VOTER }, data, unit, None);
    assert!(refusal(&observation).contains("must be removed from the cluster"), "{}", refusal(&observation));
}

/// The voter may have acknowledged entries before it published its name.
#[test]
fn a_voter_that_lost_its_data_before_it_was_known_is_not_started_again() {
    let own = Own::Unstarted { learner: VOTER };
    let lost = observation(own, LOST, DOWN, Some(record(CLUSTER, OWN)));
    assert!(refusal(&lost).contains("must be removed from the cluster"), "{}", refusal(&lost));
    let learner = observation(Own::Unstarted { learner: LEARNER }, LOST, DOWN, Some(record(CLUSTER, OWN)));
    assert_eq!(join(&learner), JoinStep::RemoveOwnLearner(OWN));
    let killed_before_its_log = observation(own, NO_DATA, DOWN, Some(record(CLUSTER, OWN)));
    assert_eq!(join(&killed_before_its_log), JoinStep::Start(OWN));
}

/// The record is on the same disk as the data. Both may be lost together, and then only the epoch shows it.
#[test]
fn a_member_that_lost_its_record_too_does_not_come_back_by_itself() {
    let removed = observation(Own::Absent, LOST, DOWN, None);
    let why = refusal(&removed);
    assert!(why.contains("not added again by itself") && why.contains("/etc/etcd/epoch"), "{why}");
    for own in [Own::Unstarted { learner: VOTER }, Own::Started { learner: VOTER }] {
        let why = refusal(&observation(own, LOST, DOWN, None));
        assert!(why.contains("must be removed from the cluster"), "{own:?}: {why}");
    }
    for own in [Own::Unstarted { learner: LEARNER }, Own::Started { learner: LEARNER }] {
        assert_eq!(join(&observation(own, LOST, DOWN, None)), JoinStep::RemoveOwnLearner(OWN), "{own:?}");
    }
    // This run or a person has added the machine again, after the record says what was lost.
    for record in [record(0, 0x99), removal_confirmed(0x99)] {
        let again = observation(Own::Unstarted { learner: LEARNER }, LOST, DOWN, Some(record));
        assert_eq!(join(&again), JoinStep::Start(OWN));
    }
}

/// The run was killed or refused after it disowned the member and before it removed it: the record still has the
/// member's ID, but not its cluster. Only a confirmation by the cluster shows that this machine removed the member. If
/// somebody else removed it, it has to stay out.
#[rstest]
#[case(LOST)]
#[case(NO_DATA)]
#[case(FORGOTTEN)]
fn a_machine_joins_again_only_where_its_own_removal_of_its_learner_was_confirmed(#[case] data: Data) {
    let of = |own, record| join(&observation(own, data.clone(), DOWN, Some(record)));
    let listed = Own::Started { learner: LEARNER };
    assert_eq!(of(listed, record(CLUSTER, OWN)), JoinStep::RemoveOwnLearner(OWN), "its data is lost");
    assert_eq!(of(listed, record(0, OWN)), JoinStep::RemoveOwnLearner(OWN), "it has begun to remove it");
    assert_eq!(of(Own::Absent, removal_confirmed(OWN)), JoinStep::Add);
    let JoinStep::Refuse(why) = of(Own::Absent, record(0, OWN)) else { panic!("who has removed it is not known") };
    for named in ["learner 33", "has not confirmed", "not added again by itself", "/etc/etcd/epoch", "member.json"] {
        assert!(why.contains(named), "{why}");
    }
    let JoinStep::Refuse(why) = of(Own::Absent, record(CLUSTER, OWN)) else { panic!("somebody else has removed it") };
    assert!(why.contains("it was removed"), "{why}");
    // A record from a version of etcdadm that did not record confirmations: its removal is in doubt.
    let older = r#"{"clusterID": "0", "memberID": "33", "name": "own", "peerURL": "https://10.0.0.3:2380"}"#;
    assert_eq!(serde_json::from_str::<MemberRecord>(older).unwrap(), record(0, OWN));
    let text = serde_json::to_string(&removal_confirmed(OWN)).unwrap();
    assert!(text.contains(r#""removalConfirmed":true"#), "{text}");
}

/// The controller removes the member that had the address. A machine that boots earlier waits, and then joins.
#[rstest]
#[case::voter(VOTER, NO_DATA, None)]
#[case::learner(LEARNER, NO_DATA, None)]
#[case::cleaned_up(VOTER, FORGOTTEN, None)]
#[case::from_another_cluster(VOTER, NO_DATA, Some(record(0xdead, OWN)))]
#[case::its_own_lost_learner_is_removed(VOTER, LOST, Some(removal_confirmed(OWN)))]
fn an_address_that_another_member_has_is_waited_for(
    #[case] learner: bool,
    #[case] data: Data,
    #[case] record: Option<MemberRecord>,
) {
    let taken = observation(Own::Former { learner }, data.clone(), DOWN, record.clone());
    let JoinStep::AwaitRemoval(why) = join(&taken) else { panic!("{:?}", join(&taken)) };
    for named in ["member 22 (former)", "this machine is own", OWN_URL, "has been removed", "two machines"] {
        assert!(why.contains(named), "{why}");
    }
    assert_eq!(join(&observation(Own::Absent, data, DOWN, record)), JoinStep::Add, "it has been removed");
}

/// Another name does not prove that the member belongs to another machine: this machine has a record of it.
#[test]
fn a_member_that_is_called_otherwise_by_now_is_known_by_its_record() {
    let renamed =
        |learner, cluster_id| join(&observation(Own::Former { learner }, LOST, DOWN, Some(record(cluster_id, FORMER))));
    let JoinStep::Refuse(why) = renamed(VOTER, CLUSTER) else { panic!("{:?}", renamed(VOTER, CLUSTER)) };
    assert!(why.contains("must be removed from the cluster"), "{why}");
    assert_eq!(renamed(LEARNER, CLUSTER), JoinStep::RemoveOwnLearner(FORMER));
    assert_eq!(renamed(LEARNER, 0), JoinStep::RemoveOwnLearner(FORMER), "it has begun to remove it");
}

/// It would wait in vain.
#[test]
fn a_machine_whose_member_was_removed_waits_for_no_address() {
    for (data, record) in [(NO_DATA, Some(record(CLUSTER, OWN))), (LOST, Some(record(CLUSTER, OWN))), (LOST, None)] {
        for learner in [VOTER, LEARNER] {
            let why = refusal(&observation(Own::Former { learner }, data.clone(), DOWN, record.clone()));
            assert!(why.contains("not added again by itself"), "{why}");
        }
    }
}

#[test]
fn data_of_another_cluster_is_never_touched() {
    let mut other = observation(Own::Absent, DATA, UP, Some(record(0xdead, OWN)));
    other.local.owner = Some(owner(0xdead, OWN));
    assert!(refusal(&other).contains("member 33 of cluster dead"), "{}", refusal(&other));
    // Without data, a record of another cluster does not matter any more.
    let other = observation(Own::Absent, NO_DATA, DOWN, Some(record(0xdead, OWN)));
    assert_eq!(join(&other), JoinStep::Add);
}

#[rstest]
#[case(DATA)]
#[case(NO_DATA)]
#[case(LOST)]
#[case(FORGOTTEN)]
fn a_member_that_was_removed_never_adds_itself_again(#[case] data: Data) {
    let removed = observation(Own::Absent, data, DOWN, Some(record(CLUSTER, OWN)));
    assert!(refusal(&removed).contains("removed"), "{}", refusal(&removed));
    assert!(refusal(&removed).contains("member.json"), "it says how to join again: {}", refusal(&removed));
}

#[test]
fn a_member_added_again_under_its_url_does_not_start_with_its_old_data() {
    let mut again = observation(Own::Unstarted { learner: LEARNER }, DATA, DOWN, None);
    again.local.owner = Some(owner(CLUSTER, 0x99));
    assert!(refusal(&again).contains("member 99"), "{}", refusal(&again));
}

#[rstest]
#[case(Some(owner(CLUSTER, 0x99)))]
#[case(Some(owner(0xdead, OWN)))]
fn data_that_is_not_the_recorded_members_is_refused(#[case] owner: Option<Owner>) {
    let mut swapped = observation(Own::Started { learner: VOTER }, DATA, DOWN, Some(record(CLUSTER, OWN)));
    swapped.local.owner = owner;
    assert!(refusal(&swapped).contains("member.json"), "{}", refusal(&swapped));
    assert!(matches!(init(&swapped.local, None), InitStep::Refuse(_)));
}

#[test]
fn an_older_copy_is_refused() {
    let older = observation(Own::Started { learner: VOTER }, Data::Outdated, DOWN, Some(record(CLUSTER, OWN)));
    assert!(refusal(&older).contains("older copy"), "{}", refusal(&older));
    assert!(matches!(init(&older.local, None), InitStep::Refuse(why) if why.contains("older copy")));
}

#[test]
fn a_member_whose_address_changed_is_told_so() {
    let mut moved = observation(Own::Absent, DATA, UP, Some(record(CLUSTER, OWN)));
    moved.membership.members.push(member(OWN, "own", "https://10.0.0.99:2380", false));
    assert!(refusal(&moved).contains("https://10.0.0.99:2380"), "{}", refusal(&moved));
}

#[rstest]
#[case(NO_DATA, DOWN, false, Some(InitStep::StartNew))]
#[case::a_corrected_run_is_heard(NO_DATA, UP, false, Some(InitStep::StartNew))]
#[case(DATA, DOWN, false, Some(InitStep::StartAgain))]
#[case(DATA, DOWN, true, Some(InitStep::StartAgain))]
#[case(DATA, UP, true, Some(InitStep::AwaitHealth))]
#[case::would_fork_the_cluster(NO_DATA, DOWN, true, None)]
#[case::would_fork_the_cluster_in_a_crash_loop(NO_DATA, UP, true, None)]
#[case::lost_before_the_record(LOST, DOWN, false, None)]
#[case::lost_before_the_record_in_a_crash_loop(LOST, UP, false, None)]
#[case::only_the_settings_are_left(FORGOTTEN, DOWN, false, None)]
fn an_interrupted_init_goes_on(
    #[case] data: Data,
    #[case] unit: UnitState,
    #[case] recorded: bool,
    #[case] step: Option<InitStep>,
) {
    let record = recorded.then(|| record(CLUSTER, OWN));
    let decided = init(&local(data, unit, record), None);
    match step {
        Some(step) => assert_eq!(decided, step),
        None => assert!(matches!(decided, InitStep::Refuse(_)), "{decided:?}"),
    }
}

/// A reinstalled machine remembers nothing.
#[rstest]
#[case::in_time(NO_DATA, 0, false)]
#[case::late(NO_DATA, 1, true)]
#[case::a_member_starts_at_any_time(DATA, 1, false)]
fn a_new_cluster_is_started_in_time_only(#[case] data: Data, #[case] seconds_late: i64, #[case] refused: bool) {
    let not_after = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let deadline = Deadline { not_after, now: not_after + time::Duration::seconds(seconds_late) };
    for unit in [UP, DOWN] {
        let step = init(&local(data.clone(), unit, None), Some(deadline));
        match step {
            InitStep::Refuse(why) => {
                assert!(refused, "{why}");
                for named in
                    ["2027-01-15", "ETCDADM_INIT_NOT_AFTER", "delete the Machine", "etcdadm join", "clock is wrong"]
                {
                    assert!(why.contains(named), "{why}");
                }
            }
            step => assert!(!refused, "{step:?}"),
        }
    }
}

/// If only some of these files were removed, the next run would find that there was data.
#[test]
fn the_way_out_of_a_lost_cluster_names_every_file() {
    let InitStep::Refuse(why) = init(&local(LOST, DOWN, Some(record(CLUSTER, OWN))), None) else { unreachable!() };
    for file in ["/etc/etcd/epoch", "/etc/etcd/etcd.env", "member.json"] {
        assert!(why.contains(file), "{why}");
    }
}

fn any_own() -> impl Strategy<Value = Own> {
    prop_oneof![
        Just(Own::Absent),
        any::<bool>().prop_map(|learner| Own::Unstarted { learner }),
        any::<bool>().prop_map(|learner| Own::Started { learner }),
        any::<bool>().prop_map(|learner| Own::Former { learner }),
    ]
}

fn any_observation() -> impl Strategy<Value = (Own, Observation)> {
    let unit = prop_oneof![Just(UP), Just(DOWN)];
    let data = prop_oneof![Just(Data::Blank), Just(DATA), Just(LOST), Just(FORGOTTEN), Just(Data::Outdated)];
    let member = || prop_oneof![Just(OWN), Just(0x99)];
    let identity = || (prop_oneof![Just(CLUSTER), Just(0xdead)], member());
    let recorded = prop_oneof![
        identity().prop_map(|(cluster_id, member_id)| record(cluster_id, member_id)),
        member().prop_map(|member_id| record(0, member_id)),
        member().prop_map(removal_confirmed),
    ];
    (any_own(), data, unit, proptest::option::of(recorded), identity()).prop_map(|(own, data, unit, record, log)| {
        let mut observation = observation(own, data, unit, record);
        observation.local.owner = observation.local.owner.map(|_| owner(log.0, log.1));
        (own, observation)
    })
}

proptest! {
    /// Only a machine that is not a member and has no data is added, and only a lost learner is removed.
    #[test]
    fn membership_changes_only_where_it_is_safe((own, observation) in any_observation()) {
        let local = &observation.local;
        match join(&observation) {
            step @ (JoinStep::Add | JoinStep::AwaitRemoval(_)) => {
                prop_assert_eq!(own == Own::Absent, step == JoinStep::Add);
                let is_own = matches!(own, Own::Unstarted { .. } | Own::Started { .. });
                prop_assert!(!is_own && local.owner.is_none());
                let may_join = |record: &MemberRecord| record.cluster_id != CLUSTER && !record.is_in_doubt();
                prop_assert!(local.record.as_ref().is_none_or(may_join));
                prop_assert!(local.data != LOST || local.record.is_some(), "perhaps it was removed from this cluster");
            }
            JoinStep::RemoveOwnLearner(id) => {
                prop_assert_eq!(id, OWN);
                prop_assert!(local.owner.is_none());
                let learner = matches!(own, Own::Started { learner: true } | Own::Unstarted { learner: true });
                prop_assert!(learner);
            }
            JoinStep::Promote(id) => {
                prop_assert_eq!(id, OWN);
                prop_assert_eq!(local.owner, Some(owner(CLUSTER, OWN)));
                prop_assert_eq!(own, Own::Started { learner: true });
            }
            JoinStep::AwaitHealth(id) => {
                prop_assert_eq!(id, OWN);
                prop_assert_eq!(own, Own::Started { learner: false });
            }
            _ => {}
        }
    }

    /// A member does not start if it had data and has lost it, or if its data is not the data that it should have.
    #[test]
    fn nothing_starts_without_its_own_latest_data((own, observation) in any_observation()) {
        let local = &observation.local;
        if let JoinStep::Start(_) | JoinStep::AwaitStart(_) = join(&observation) {
            prop_assert!(local.data != Data::Outdated);
            match local.owner {
                Some(log) => prop_assert_eq!(log, owner(CLUSTER, OWN)),
                None => {
                    let unstarted = matches!(own, Own::Unstarted { .. });
                    prop_assert!(unstarted);
                    prop_assert!(local.data != LOST || local.record.is_some(), "perhaps the data was this member's");
                }
            }
        }
        match init(local, None) {
            InitStep::StartNew => prop_assert!(local.data == Data::Blank && local.record.is_none()),
            InitStep::StartAgain | InitStep::AwaitHealth => prop_assert_eq!(&local.data, &Data::Present),
            InitStep::Refuse(_) => {}
        }
    }

    /// If the cluster and the machine carry out each step, the steps end with a started voter that runs, from any
    /// initial state, unless the first step is refused.
    #[test]
    fn every_path_ends((_, start) in any_observation()) {
        let mut now = start;
        for taken in 0..8 {
            let own = now.membership.members.iter().position(|m| m.id == OWN);
            let former = now.membership.members.iter().position(|m| m.id == FORMER);
            let step = join(&now);
            match step {
                JoinStep::Add => {
                    now.membership.members.push(member(OWN, "", OWN_URL, true));
                    // A cluster never gives an ID twice.
                    if let Some(record) = &mut now.local.record {
                        record.member_id = 0x99;
                    }
                }
                JoinStep::AwaitRemoval(_) => {
                    now.membership.members.remove(former.unwrap());
                }
                JoinStep::RemoveOwnLearner(_) => {
                    now.membership.members.remove(own.unwrap());
                    now.local.record = Some(removal_confirmed(OWN));
                }
                JoinStep::Start(_) => {
                    now.local = local(DATA, UP, Some(record(CLUSTER, OWN)));
                }
                JoinStep::AwaitStart(_) => now.membership.members[own.unwrap()].name = "own".to_owned(),
                JoinStep::Promote(_) => now.membership.members[own.unwrap()].learner = false,
                JoinStep::AwaitHealth(_) => return Ok(()),
                JoinStep::Refuse(_) => {
                    prop_assert_eq!(taken, 0);
                    return Ok(());
                }
            }
        }
        prop_assert!(false, "no end: {:?}", now);
    }
}
