//! An exhaustive model check of the shipped planner: every reachable state of a few members, with every fault in
//! between.
//!
//! [`state`] has the states. In each state, [`view`] makes what the controller sees of it, the shipped `plan` decides,
//! and [`manager`] does the step. [`moves`] has everything else that happens: machines that boot, `etcdadm` on each of
//! them, faults, users. [`rules`] says what must hold, and [`explore`] visits every state. Why this model checker is
//! our own: `docs/decisions/0010-own-model-checker.md`.

mod explore;
mod in_use;
mod manager;
mod moves;
mod rules;
mod set;
mod state;
mod tidy;
mod view;

use explore::{Bounds, Report, explore};
use state::{Budget, State};

/// The bounds of a unit test. A larger search would take too long.
const LIMIT: Bounds = Bounds { states: 200_000, mib: 2_048, seconds: 600 };

/// Explores all states and prints the figures. Fails with the path to a broken rule, or if the bounds end the search
/// before everything is seen.
fn check(name: &str, starts: &[State], bounds: Bounds) {
    let report = search(name, starts, bounds);
    if let Some(cut) = report.cut {
        panic!("{name}{cut}");
    }
}

/// Like `check`, but if the bounds end the search, that is only printed. For `make model`, where there may be more
/// states than fit.
fn check_within(name: &str, starts: &[State], bounds: Bounds) {
    search(name, starts, bounds);
}

fn search(name: &str, starts: &[State], bounds: Bounds) -> Report {
    let report = explore(starts, bounds);
    println!("{name}: {}", report.figures());
    if let Some(broken) = &report.broken {
        panic!("{name}: {broken}");
    }
    report
}

/// The bounds of each search of `make model`. Two searches run at a time, so together they take twice the memory.
fn full() -> Bounds {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<usize>().expect(name));
    Bounds {
        states: given("MODEL_STATES").unwrap_or(20_000_000),
        mib: given("MODEL_MIB").unwrap_or(2_048),
        seconds: given("MODEL_SECONDS").unwrap_or(300) as u64,
    }
}

/// Whether the larger searches are wanted. They take minutes, and hours without optimization.
fn is_full() -> bool {
    std::env::var_os("E2E_FULL").is_some() && !cfg!(debug_assertions)
}

#[test]
fn bring_up() {
    let budget = Budget { faults: 1, ..Budget::default() };
    check("bring-up of one", &[State::empty(1, budget)], LIMIT);
    check("bring-up of three", &[State::empty(3, budget)], LIMIT);
    let budget = Budget { deletions: 1, ..Budget::default() };
    check("bring-up of one, and its Machine is deleted", &[State::empty(1, budget)], LIMIT);
    check("bring-up of three, and a Machine is deleted", &[State::empty(3, budget)], LIMIT);
}

#[test]
fn a_machine_is_deleted() {
    let budget = Budget { deletions: 1, ..Budget::default() };
    check("a Machine of three is deleted", &[State::healthy(3, budget)], LIMIT);
    let budget = Budget { faults: 1, ..budget };
    check("a Machine of one is deleted, and a fault", &[State::healthy(1, budget)], LIMIT);
}

#[test]
fn two_machines_are_deleted() {
    let budget = Budget { deletions: 2, ..Budget::default() };
    check("two Machines of three are deleted", &[State::healthy(3, budget)], LIMIT);
}

#[test]
fn a_replacement_is_deleted() {
    let budget = Budget { faults: 1, deletions: 1, ..Budget::default() };
    check("a replacement of one that boots is deleted", &[State::replacing(1, false, budget)], LIMIT);
    let budget = Budget { deletions: 1, ..Budget::default() };
    check("a replacement of three that is a learner is deleted", &[State::replacing(3, true, budget)], LIMIT);
    let late = State::replacing(1, false, budget).without_address(1);
    check("a replacement of one is deleted before its address is shown", &[late], LIMIT);
    let budget = Budget { forgets: 1, ..budget };
    check("a replacement of one that learns is deleted, and forgets", &[State::replacing(1, true, budget)], LIMIT);
}

#[test]
fn a_watch_lags() {
    let budget = Budget { lags: 1, deletions: 1, ..Budget::default() };
    check("a watch lags while a Machine of three is deleted", &[State::healthy(3, budget)], LIMIT);
    check("a watch lags while a replacement is deleted", &[State::replacing(3, false, budget)], LIMIT);
    let budget = Budget { lags: 1, ..Budget::default() };
    check("a watch lags while one of three is down", &[State::with_one_down(3, budget)], LIMIT);
    check("a watch lags in a bring-up", &[State::empty(3, budget)], LIMIT);
    let budget = Budget { deletions: 1, ..budget };
    check("a watch lags in a bring-up of one, and its Machine is deleted", &[State::empty(1, budget)], LIMIT);
    let budget = Budget { faults: 1, lags: 0, ..budget };
    check("a second manager in a bring-up of one, and its Machine is deleted", &[State::empty(1, budget)], LIMIT);
}

#[test]
fn one_grows_to_three() {
    let budget = Budget { faults: 1, edits: 1, ..Budget::default() };
    check("one grows to three", &[State::healthy(1, budget)], LIMIT);
    let budget = Budget { faults: 0, ..budget };
    check("one grows to three, one by one", &[State::healthy(1, budget).with_one_learner()], LIMIT);
}

#[test]
fn three_shrink_to_one() {
    let budget = Budget { edits: 1, ..Budget::default() };
    check("three shrink to one, or grow to five", &[State::healthy(3, budget)], LIMIT);
    check("three in use shrink to one, or grow to five", &[State::healthy(3, budget).used()], LIMIT);
    let budget = Budget { lags: 1, ..budget };
    check("three shrink to one, or grow to five, while a watch lags", &[State::healthy(3, budget)], LIMIT);
}

#[test]
fn a_member_is_replaced() {
    let budget = Budget { faults: 1, ..Budget::default() };
    let down = |budget| State::with_one_down(3, budget);
    let none = Budget::default();
    check("one of three is down", &[down(none), down(none).used(), down(none).with_one_learner()], LIMIT);
    check("one of three is down, and a fault", &[down(budget)], LIMIT);
}

#[test]
fn without_room_members_leave_first() {
    let budget = Budget { deletions: 2, ..Budget::default() };
    check("two Machines of three are deleted without room", &[State::healthy(3, budget).surging(0)], LIMIT);
    let budget = Budget { faults: 1, deletions: 1, ..Budget::default() };
    check("a Machine of three is deleted without room, and a fault", &[State::healthy(3, budget).surging(0)], LIMIT);
    let budget = Budget { faults: 1, ..Budget::default() };
    check("one of three is down without room, and a fault", &[State::with_one_down(3, budget).surging(0)], LIMIT);
    let budget = Budget { lags: 1, deletions: 1, ..Budget::default() };
    check(
        "a Machine of three is deleted without room while a watch lags",
        &[State::healthy(3, budget).surging(0)],
        LIMIT,
    );
    let used = |budget: Budget| State::healthy(3, budget).used().surging(0);
    let budget = Budget { deletions: 2, ..Budget::default() };
    check("two Machines of three in use are deleted without room", &[used(budget)], LIMIT);
    let budget = Budget { deletions: 1, rolls: 1, ..Budget::default() };
    check("three in use are rolled without room, and one is deleted", &[used(budget)], LIMIT);
}

#[test]
fn members_are_rolled() {
    let budget = Budget { rolls: 1, ..Budget::default() };
    check("one is rolled", &[State::healthy(1, budget), State::healthy(1, budget).used()], LIMIT);
    check("three are rolled that nobody uses", &[State::healthy(3, budget)], LIMIT);
    check("three are rolled", &[State::healthy(3, budget).used()], LIMIT);
    let narrow = |most| State::healthy(3, budget).used().surging(most);
    check("three are rolled with room for one or two more", &[narrow(1), narrow(2)], LIMIT);
    check("three are rolled without room", &[narrow(0), State::healthy(3, budget).surging(0)], LIMIT);
    let twice = Budget { rolls: 2, ..budget };
    check("one is rolled, and again or back", &[State::healthy(1, twice), State::healthy(1, twice).used()], LIMIT);
    let fault = Budget { faults: 1, ..budget };
    check("one is rolled, and a fault", &[State::healthy(1, fault), State::healthy(1, fault).used()], LIMIT);
    let lag = Budget { lags: 1, ..budget };
    check("one is rolled while a watch lags", &[State::healthy(1, lag), State::healthy(1, lag).used()], LIMIT);
    let deletion = Budget { deletions: 1, ..budget };
    check("three are rolled that nobody uses, and one is deleted", &[State::healthy(3, deletion)], LIMIT);
}

#[test]
fn a_machine_is_stripped() {
    let budget = Budget { strips: 1, ..Budget::default() };
    check("a Machine of three is stripped", &[State::healthy(3, budget)], LIMIT);
    check("a Machine is stripped in a replacement of one", &[State::replacing(1, true, budget)], LIMIT);
    let budget = Budget { edits: 1, ..budget };
    check("a Machine is stripped while one grows to three", &[State::healthy(1, budget)], LIMIT);
}

#[test]
fn of_five_and_seven_one_is_replaced() {
    let none = Budget::default();
    check("one of five is down", &[State::with_one_down(5, none).by_symmetry()], LIMIT);
    check("one of seven is down", &[State::with_one_down(7, none).by_symmetry()], LIMIT);
}

/// `make model` and `.ci/full` run these searches.
#[test]
fn more_of_everything() {
    if !is_full() {
        return;
    }
    let limit = full();
    let both = Budget { faults: 1, lags: 1, deletions: 1, ..Budget::default() };
    check_within("three, a fault and a deletion", &[State::healthy(3, Budget { lags: 0, ..both })], limit);
    check_within("three, a fault and a lag", &[State::healthy(3, both)], limit);
    check_within("bring-up of three, a fault and a lag", &[State::empty(3, both)], limit);
    let two = Budget { faults: 2, edits: 1, ..Budget::default() };
    check_within("one grows to three, and two faults", &[State::healthy(1, two)], limit);
    let two = Budget { faults: 2, deletions: 2, ..Budget::default() };
    check_within("three, two faults and two deletions", &[State::healthy(3, two)], limit);
    let one = Budget { faults: 1, deletions: 1, ..Budget::default() };
    check_within("one of three is down, a fault and a deletion", &[State::with_one_down(3, one)], limit);
    let fault = Budget { deletions: 0, ..one };
    check_within("one of three in use is down, and a fault", &[State::with_one_down(3, fault).used()], limit);
    check_within("three in use, a fault and a deletion", &[State::healthy(3, one).used()], limit);
    check_within("a replacement that is a learner, a fault and a deletion", &[State::replacing(3, true, one)], limit);
    let edit = Budget { faults: 1, edits: 1, ..Budget::default() };
    check_within("three, a fault and an edit", &[State::healthy(3, edit)], limit);
    check_within("one grows one by one, and a fault", &[State::healthy(1, edit).with_one_learner()], limit);
    let twice = Budget { faults: 0, edits: 2, ..edit };
    check_within("three in use, and a mind is changed", &[State::healthy(3, twice).used()], limit);
    check_within("five, a fault and a deletion", &[State::healthy(5, one)], limit);
    let stripped = Budget { strips: 1, edits: 1, ..Budget::default() };
    let lag = State::healthy(1, Budget { lags: 1, ..stripped });
    check_within("a Machine is stripped while one grows to three and a watch lags", &[lag], limit);
    let fault = State::healthy(1, Budget { faults: 1, ..stripped });
    check_within("a Machine is stripped while one grows to three, and a fault", &[fault], limit);
    let used = State::healthy(1, stripped).used();
    check_within("a Machine is stripped while one that is in use grows to three", &[used], limit);
    let two = Budget { strips: 2, edits: 0, ..stripped };
    check_within("two Machines of three are stripped", &[State::healthy(3, two)], limit);
}

/// The same for rollouts.
#[test]
fn more_rollouts() {
    if !is_full() {
        return;
    }
    let limit = full();
    let roll = Budget { edits: 1, rolls: 1, ..Budget::default() };
    check_within("one is rolled, and grows", &[State::healthy(1, roll), State::healthy(1, roll).used()], limit);
    let roll = Budget { faults: 1, edits: 0, ..roll };
    check_within("three are rolled, and a fault", &[State::healthy(3, roll), State::healthy(3, roll).used()], limit);
    let narrow = |most| State::healthy(3, roll).used().surging(most);
    let room = "three are rolled with room for one or two more, or for none, and a fault";
    check_within(room, &[narrow(1), narrow(2), narrow(0)], limit);
    let roll = Budget { faults: 0, lags: 1, ..roll };
    let both = [State::healthy(3, roll), State::healthy(3, roll).used()];
    check_within("three are rolled while a watch lags", &both, limit);
    let roll = Budget { lags: 0, deletions: 1, ..roll };
    check_within("three are rolled, and one is deleted", &[State::healthy(3, roll).used()], limit);
}

/// The same for members whose data is gone while their machines run on.
#[test]
fn members_forget() {
    if !is_full() {
        return;
    }
    let limit = full();
    let one = Budget { forgets: 1, ..Budget::default() };
    check_within("one forgets", &[State::healthy(1, one)], limit);
    check_within("one of three forgets", &[State::healthy(3, one)], limit);
    check_within("one of three is down, and a member forgets", &[State::with_one_down(3, one)], limit);
    check_within("one of three is replaced, and a member forgets", &[State::replacing(3, true, one)], limit);
    let two = Budget { forgets: 2, ..one };
    check_within("two of three forget", &[State::healthy(3, two)], limit);
    check_within("three of five forget", &[State::healthy(5, Budget { forgets: 3, ..two }).by_symmetry()], limit);
    let grows = Budget { edits: 1, ..one };
    check_within("one grows, and a member forgets", &[State::healthy(1, grows)], limit);
    let fault = Budget { faults: 1, ..one };
    check_within("one of three forgets, and a fault", &[State::healthy(3, fault)], limit);
    let deletion = Budget { deletions: 1, ..one };
    let lag = State::replacing(1, true, Budget { lags: 1, ..deletion });
    check_within("a replacement is deleted, and forgets while a watch lags", &[lag], limit);
    let fault = State::replacing(1, true, Budget { faults: 1, ..deletion });
    check_within("a replacement is deleted and forgets, and a fault", &[fault], limit);
}

/// Searches with up to eleven members at a time, at the peak of a surge at seven. States that differ only in the order
/// of like members are one state.
#[test]
fn five_and_seven() {
    if !is_full() {
        return;
    }
    let limit = full();
    let five = |budget| State::healthy(5, budget).by_symmetry();
    let seven = |budget| State::healthy(7, budget).by_symmetry();
    let deletion = Budget { deletions: 1, ..Budget::default() };
    check_within("a Machine of five is deleted", &[five(deletion)], limit);
    check_within("a Machine of seven is deleted", &[seven(deletion)], limit);
    let edit = Budget { edits: 1, ..Budget::default() };
    check_within("five in use shrink or grow", &[five(edit), five(edit).used()], limit);
    check_within("seven in use shrink", &[seven(edit).used()], limit);
    let fault = Budget { faults: 1, ..Budget::default() };
    check_within("five, a fault", &[five(fault)], limit);
    check_within("seven, a fault", &[seven(fault)], limit);
    check_within("one of five is down, and a fault", &[State::with_one_down(5, fault).by_symmetry()], limit);
    check_within("one of seven is down, and a fault", &[State::with_one_down(7, fault).by_symmetry()], limit);
    let roll = Budget { rolls: 1, ..Budget::default() };
    check_within("five are rolled", &[five(roll), five(roll).used()], limit);
    check_within("seven are rolled", &[seven(roll), seven(roll).used()], limit);
    check_within("five are rolled without room", &[five(roll).surging(0), five(roll).used().surging(0)], limit);
}
