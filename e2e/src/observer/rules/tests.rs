//! Each rule on records of a few lines: what it allows, and what it finds.

use super::check;
use crate::observer::record::{Etcd, Fault};
use crate::observer::story::{LEARNER, Story, VOTER};
use rstest::rstest;

/// Three voters that answer.
fn three() -> Story {
    Story::of(3).list(&[(0, VOTER), (1, VOTER), (2, VOTER)]).answer(&[0, 1, 2]).after(10)
}

fn joins_as_a_voter(story: Story) -> Story {
    story.list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2, 3])
}

fn has_a_learner(story: Story) -> Story {
    story.list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, LEARNER)]).answer(&[0, 1, 2, 3]).after(5)
}

fn has_four(story: Story) -> Story {
    has_a_learner(story).list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2, 3]).after(5)
}

/// The learner now votes, and one of the voters has left. According to the status that announced the removal, `voters`
/// voted before.
fn swapped(story: Story, voters: &[usize]) -> Story {
    let left = story.announced_beside(0, voters).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]);
    left.silent(0).after(1).published(&[1, 2, 3]).after(10)
}

fn replaced(story: Story) -> Story {
    let left = has_four(story).announced(0).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]);
    left.silent(0).after(1).published(&[1, 2, 3]).after(10)
}

#[rstest]
#[case::steady(three(), &[])]
#[case::a_member_is_replaced(replaced(three()), &[])]
#[case::a_voter_falls_silent(three().silent(1).after(11), &["silent voter"])]
#[case::a_slow_answer(three().silent(1).after(9).answer(&[1]).after(10), &[])]
#[case::its_log_goes_on(
    three().silent(1).after(8).disk(1, 0).after(1).disk(1, 1).after(8).disk(1, 2).after(8), &[]
)]
#[case::its_log_goes_on_and_stops(
    three().silent(1).after(8).disk(1, 0).after(1).disk(1, 1).after(11), &["silent voter"]
)]
#[case::a_scenario_kills_it(three().fault(&[1], None).silent(1).after(60), &[])]
#[case::another_one_falls_silent(three().fault(&[1], None).silent(1).silent(2).after(11), &["silent voter"])]
#[case::the_fault_is_over(
    three().fault(&[1], None).silent(1).after(60).over(&[1]).after(71),
    &["silent voter"]
)]
#[case::it_answers_again_and_stops(
    three().fault(&[1], Some(60)).silent(1).after(9).answer(&[1]).after(9).silent(1).after(11),
    &["silent voter"]
)]
#[case::the_cluster_is_deleted(three().etcd(|etcd| etcd.deleting = true).silent(1).silent(2).after(60), &[])]
#[case::the_cluster_is_gone(three().left_behind().silent(1).silent(2).after(60), &[])]
#[case::a_machine_goes_before_its_member(
    three().silent(0).after(4).announced(0).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]),
    &["silent voter"]
)]
#[case::nobody_answers_while_it_goes(
    three().announced(0).silent(0).silent(1).silent(2).after(4).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]), &[]
)]
#[case::a_voter_is_removed_first(
    three().announced(0).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]).after(5),
    &["weaker than before"]
)]
#[case::a_dead_voter_is_removed(
    three().fault(&[0], None).silent(0).after(60).announced(0).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]).after(9),
    &[]
)]
#[case::a_dead_voter_is_removed_without_an_operation(
    three().fault(&[0], None).silent(0).after(60).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]).after(9),
    &["removed without being announced"]
)]
#[case::a_voter_that_only_the_observer_does_not_hear_is_removed_first(
    three().fault(&[0], None).after(60).announced(0).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]).after(9),
    &["weaker than before"]
)]
#[case::a_dead_voter_is_removed_in_the_moment_of_a_promotion(
    has_a_learner(three()).fault(&[0], None).silent(0).after(60).announced(0)
        .list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]).after(9),
    &["two changes at once"]
)]
#[case::a_person_removes_a_voter(
    three().removed_by_hand(0).list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]).after(9),
    &[]
)]
#[case::a_silent_learner_is_promoted(
    three().fault(&[3], None).list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, LEARNER)]).answer(&[0, 1, 2])
        .silent(3).after(9)
        .list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).after(5),
    &["weaker than before"]
)]
#[case::a_learner_that_is_slow_to_answer_is_promoted(
    three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, LEARNER)]).answer(&[0, 1, 2]).silent(3).after(9)
        .list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).after(1).answer(&[3]).after(5),
    &[]
)]
#[case::a_learner_is_promoted_before_it_was_asked(
    three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, LEARNER)]).answer(&[0, 1, 2]).after(1)
        .list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).silent(3).after(4)
        .answer(&[3]).after(12),
    &[]
)]
#[case::a_learner_is_promoted_before_it_was_asked_and_never_answers(
    three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, LEARNER)]).answer(&[0, 1, 2]).after(1)
        .list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).silent(3).after(14).after(1),
    &["silent voter", "weaker than before"]
)]
#[case::its_address_is_shown_late(
    three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).after(5).silent(3).after(2)
        .answer(&[3]).after(5),
    &["wrong addition"]
)]
#[case::its_address_is_never_shown(
    three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).after(14).after(1),
    &["silent voter", "weaker than before", "wrong addition"]
)]
#[case::the_observer_is_late_with_it(
    three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[0, 1, 2]).silent(3).after(2).late().after(2)
        .answer(&[3]).after(5),
    &["wrong addition"]
)]
#[case::it_joins_as_a_voter(joins_as_a_voter(three()), &["wrong addition"])]
#[case::nobody_was_asked_meanwhile(
    joins_as_a_voter(three().fault(&[0, 1, 2], None).silent(0).silent(1).silent(2).after(9)),
    &[]
)]
#[case::nobody_had_answered_for_long(
    joins_as_a_voter(three().silent(0).silent(1).silent(2).after(2).answer(&[0, 1, 2])),
    &[]
)]
#[case::they_had_answered_for_a_second(
    joins_as_a_voter(three().silent(0).silent(1).silent(2).after(2).answer(&[0, 1, 2]).after(1)),
    &["wrong addition"]
)]
#[case::too_many_learners(
    Story::of(5).list(&[(0, VOTER), (1, LEARNER), (2, LEARNER), (3, LEARNER), (4, LEARNER)]).answer(&[0]),
    &["wrong addition"]
)]
#[case::two_that_caught_up_side_by_side_are_promoted(
    Story::of(3).list(&[(0, VOTER), (1, LEARNER), (2, LEARNER)]).answer(&[0, 1, 2]).after(5)
        .list(&[(0, VOTER), (1, VOTER), (2, VOTER)]).answer(&[0, 1, 2]),
    &[]
)]
#[case::a_promotion_and_a_removal_at_once(swapped(has_a_learner(three()), &[0, 1, 2]), &["two changes at once"])]
#[case::the_status_saw_the_promotion_before_the_removal(swapped(has_a_learner(three()), &[0, 1, 2, 3]), &[])]
#[case::the_status_saw_both_at_once(swapped(has_a_learner(three()), &[1, 2, 3]), &["two changes at once"])]
#[case::in_the_last_moment(
    has_a_learner(three()).announced(0).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]),
    &["two changes at once"]
)]
#[case::a_removal_without_an_operation_in_the_last_moment(
    has_four(three()).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]),
    &["removed without being announced"]
)]
#[case::the_status_says_it_a_moment_later(
    has_a_learner(three()).announced(0).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3])
        .announced_beside(0, &[0, 1, 2, 3]).silent(0).after(1).published(&[1, 2, 3]).after(10),
    &[]
)]
#[case::the_observer_was_late(swapped(has_a_learner(three()).late(), &[]), &[])]
#[case::the_same_limit(three().process(0, 3).process(1, 3), &[])]
#[case::another_limit(three().process(0, 3).process(1, 1).after(1), &["different max-learners"])]
#[case::another_limit_of_one_that_never_comes_up(three().silent(3).process(3, 1).after(1), &["different max-learners"])]
#[case::the_same_limit_and_none_recorded(
    three().etcd(|etcd| etcd.max_learners = None).process(0, 1).process(1, 1).after(1), &[]
)]
#[case::another_limit_and_none_recorded(
    three().etcd(|etcd| etcd.max_learners = None).process(0, 3).process(1, 1).after(1), &["different max-learners"]
)]
#[case::a_removal_without_an_operation(
    has_four(three()).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]).silent(0).after(2),
    &["removed without being announced"]
)]
fn members(#[case] story: Story, #[case] found: &[&str]) {
    assert_eq!(story.found(), found);
}

/// A cluster of five wanted members, of which one exists and votes.
fn one() -> Story {
    Story::of(5).list(&[(0, VOTER)]).answer(&[0]).after(10)
}

#[rstest]
#[case::two_beside_one(one().boots(1).boots(2).after(1).after(1), &[])]
#[case::nobody_answers_meanwhile(one().silent(0).boots(1).boots(2).boots(3).after(1).after(1), &[])]
#[case::three_beside_one(one().boots(1).boots(2).boots(3).after(1).after(1), &["too many on their way"])]
#[case::two_beside_three(three().boots(3).boots(4).after(1).after(1), &[])]
#[case::two_beside_two(
    Story::of(5).list(&[(0, VOTER), (1, VOTER)]).answer(&[0, 1]).boots(2).boots(3).after(1).after(1),
    &["too many on their way"]
)]
#[case::voters_boot_no_more(three().boots(0).boots(1).boots(2).after(1).after(1), &[])]
#[case::one_of_them_is_let_go(one().boots(1).boots(2).boots(3).let_go(3).after(1).after(1), &[])]
#[case::promotions_are_seen_soon(
    one().boots(1).boots(2).boots(3).list(&[(0, VOTER), (1, LEARNER), (2, LEARNER)]).answer(&[0, 1, 2])
        .list(&[(0, VOTER), (1, VOTER), (2, VOTER)]).answer(&[0, 1, 2]).after(1).after(1),
    &[]
)]
#[case::a_scenario_has_made_a_fault(one().fault(&[1], None).boots(1).boots(2).boots(3).after(1).after(1), &[])]
#[case::the_machine_of_a_fault_is_gone(
    one().fault(&[7], None).boots(1).boots(2).boots(3).after(1).after(1), &["too many on their way"]
)]
fn on_their_way(#[case] story: Story, #[case] found: &[&str]) {
    assert_eq!(story.found(), found);
}

#[rstest]
#[case::seen_again(three().grow().made(7, "one").made(7, "one"), &[])]
#[case::of_another_machine(three().grow().made(7, "one").made(7, "other"), &["name used again"])]
#[case::of_an_etcd_cluster_that_goes(
    three().grow().made(7, "one").etcd(|etcd| etcd.deleting = true).made(7, "other"), &[]
)]
#[case::of_an_etcd_cluster_applied_again(three().grow().made(7, "one").applied_again().made(7, "other"), &[])]
fn names(#[case] story: Story, #[case] found: &[&str]) {
    assert_eq!(story.found(), found);
}

#[rstest]
#[case::one_too_many(three().made(7, "one"), &["made or deleted without a cause"])]
#[case::after_another_spec(three().grow().made(7, "one"), &[])]
#[case::another_spec_is_seen_a_moment_later(three().made(7, "one").after(1).grow(), &[])]
#[case::another_spec_comes_too_late(three().made(7, "one").after(9).grow(), &["made or deleted without a cause"])]
#[case::after_a_fault(three().fault(&[1], None).made(7, "one"), &[])]
#[case::after_a_fault_of_no_machine(three().fault(&[], None).made(7, "one"), &[])]
#[case::after_what_a_person_writes(three().by_hand("patch", "secrets", "ns/c-ca").made(7, "one"), &[])]
#[case::after_what_a_person_writes_elsewhere(
    three().by_hand("patch", "secrets", "other/c-ca").made(7, "one"), &["made or deleted without a cause"]
)]
#[case::we_delete_a_voters_machine(
    three().write("delete", "machines", "ns/m0").let_go(0), &["made or deleted without a cause"]
)]
#[case::a_person_deletes_it(three().by_hand("delete", "machines", "ns/m0").let_go(0), &[])]
#[case::we_delete_it_after_another_spec(three().grow().write("delete", "machines", "ns/m0").let_go(0), &[])]
#[case::we_delete_one_without_a_member(three().write("delete", "machines", "ns/m4").let_go(4), &[])]
#[case::the_etcd_cluster_goes(
    three().etcd(|etcd| etcd.deleting = true).write("delete", "machines", "ns/m0").let_go(0), &[]
)]
fn machines(#[case] story: Story, #[case] found: &[&str]) {
    assert_eq!(story.found(), found);
}

#[rstest]
#[case::a_restart(three().fault(&[1], Some(60)).silent(1).disk(1, 0).after(9).answer(&[1]).after(9), &[])]
#[case::an_older_log(
    three().fault(&[1], Some(60)).silent(1).disk(1, -3).after(9).answer(&[1]).after(9),
    &["forgetful voter"]
)]
#[case::an_older_log_that_never_starts(three().fault(&[1], None).silent(1).disk(1, -3).after(60), &[])]
#[case::it_is_taken_away_again(
    three().fault(&[1], Some(60)).silent(1).disk(1, -3).after(3).disk(1, 0).after(3).answer(&[1]).after(9), &[]
)]
#[case::what_it_told_last_was_not_written(
    three().grows().answer(&[1]).after(1).fault(&[1], Some(60)).silent(1).disk(1, -1).after(9).answer(&[1]).after(9),
    &[]
)]
#[case::it_stays_behind(three().goes_back(1, 4).after(3), &["forgetful voter"])]
#[case::it_catches_up(three().goes_back(1, 4).after(1).answer(&[1]).after(9), &[])]
#[case::a_removed_member_is_back(
    replaced(three()).list(&[(0, LEARNER), (1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 2, 3]), &["forgetful voter"]
)]
#[case::etcd_begins_again(three().stranger(1).after(1), &["forgetful voter"])]
#[case::an_etcd_goes_with_its_machine_before_the_first_one_that_stays(
    Story::of(3).let_go(4).stranger(4).after(9).list(&[(0, VOTER), (1, VOTER), (2, VOTER)]).answer(&[0, 1, 2]).after(9),
    &[]
)]
#[case::an_address_is_given_away(three().fault(&[1], None).given_away(1).stranger(1).after(60), &[])]
#[case::its_machine_is_seen_a_moment_later(three().fault(&[1], None).stranger(1).after(1).given_away(1).after(60), &[])]
#[case::its_machine_is_seen_too_late(three().fault(&[1], None).stranger(1).after(9).given_away(1).after(60), &["forgetful voter"])]
#[case::a_machine_is_said_to_have_anothers_address(three().beside_another().fault(&[1], None).stranger(1).after(60), &[])]
#[case::another_etcd_cluster_of_that_name(three().applied_again().list(&[(0, VOTER)]).stranger(0).after(9), &[])]
fn memories(#[case] story: Story, #[case] found: &[&str]) {
    assert_eq!(story.found(), found);
}

#[rstest]
#[case::all_three(three().published(&[0, 1, 2]), &[])]
#[case::one_of_three_is_left_to_a_server(replaced(replaced_server()), &[])]
#[case::two_are_taken_from_a_server(
    two_left(replaced_server()), &["too few live endpoints"]
)]
#[case::one_is_taken_beside_a_dead_one(one_left_beside_a_dead_one(), &["too few live endpoints"])]
#[case::a_dead_one_leaves_a_server_that_has_lost_one_before(a_dead_one_leaves(), &[])]
#[case::a_list_with_one_that_does_not_vote(three().server(&[0, 7, 8]).after(2), &["too few live endpoints"])]
#[case::a_list_that_comes_before_the_promotion(
    Story::of(3).list(&[(0, VOTER), (1, LEARNER)]).answer(&[0, 1]).after(5).server(&[1])
        .list(&[(0, VOTER), (1, VOTER)]).answer(&[0, 1]).after(2),
    &[]
)]
#[case::not_sorted(three().published(&[1, 0, 2]), &["wrong endpoints"])]
#[case::none_any_more(three().published(&[0, 1, 2]).published(&[]), &["wrong endpoints"])]
#[case::a_learner(
    Story::of(3).list(&[(0, VOTER), (1, LEARNER)]).answer(&[0, 1]).published(&[0, 1]).after(2).after(2),
    &["wrong endpoints"]
)]
#[case::a_learner_while_nobody_answers(
    Story::of(3).list(&[(0, VOTER), (1, LEARNER)]).answer(&[0, 1]).silent(0).silent(1).published(&[0, 1]).after(2).after(2),
    &[]
)]
#[case::one_list_for_each_spec(three().plane(&[0]).grow().plane(&[0, 1, 2]), &[])]
#[case::a_list_without_a_cause(
    three().plane(&[0]).grow().plane(&[0, 1]).plane(&[0, 1, 2]),
    &["one more control-plane rollout"]
)]
#[case::the_same_list_again(three().plane(&[0]).plane(&[0]), &[])]
#[case::one_list_for_each_fault(three().plane(&[0]).fault(&[1], None).plane(&[0, 2]), &[])]
#[case::the_end_of_a_fault_is_not_a_cause(
    three().plane(&[0]).fault(&[1], None).plane(&[0, 2]).over(&[1]).plane(&[0, 1, 2]),
    &["one more control-plane rollout"]
)]
#[case::the_observer_is_held_up_again_and_again(
    (0..12).fold(three(), |story, _| story.late().after(4)), &["nothing was observed"]
)]
#[case::the_observer_is_held_up_now_and_then((0..6).fold(three(), |story, _| story.late().after(12)), &[])]
#[case::nobody_answers_a_cluster_that_is_ready(
    Story::of(1).etcd(|etcd: &mut Etcd| etcd.ready = true).after(1).after(6), &["nothing was observed"]
)]
fn endpoints(#[case] story: Story, #[case] found: &[&str]) {
    assert_eq!(story.found(), found);
}

/// Three voters, whose endpoints an API server uses.
fn replaced_server() -> Story {
    three().server(&[0, 1, 2]).after(5)
}

/// A scenario kills one member, and we take another one away.
fn one_left_beside_a_dead_one() -> Story {
    let story = has_four(replaced_server()).fault(&[2], None).silent(2).after(3);
    story.announced(0).list(&[(1, VOTER), (2, VOTER), (3, VOTER)]).answer(&[1, 3]).silent(0).after(3)
}

/// One member was replaced. Then a scenario kills another member, which leaves.
fn a_dead_one_leaves() -> Story {
    let story = replaced(replaced_server()).fault(&[1], None).silent(1).after(60);
    story.announced(1).list(&[(2, VOTER), (3, VOTER)]).answer(&[2, 3]).after(5)
}

/// Two members are replaced.
fn two_left(story: Story) -> Story {
    let grown = has_four(story);
    let grown = grown.list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER), (4, LEARNER)]).after(3);
    let grown = grown.answer(&[0, 1, 3, 4]).after(3);
    let grown = grown.list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, VOTER), (4, VOTER)]).answer(&[0, 1, 3, 4]);
    let left = grown.after(3).announced(0).list(&[(1, VOTER), (2, VOTER), (3, VOTER), (4, VOTER)]).answer(&[1, 3, 4]);
    let left = left.silent(0).after(3).announced(1).list(&[(2, VOTER), (3, VOTER), (4, VOTER)]).answer(&[3, 4]);
    left.silent(1).after(3)
}

#[test]
fn a_violation_has_the_moment_the_state_before_it_and_our_writes_around_it() {
    let story = three().write("patch", "etcdclusters/status", "ns/e").after(1).announced(0);
    let story = story.list(&[(1, VOTER), (2, VOTER)]).answer(&[1, 2]).after(30).write("delete", "machines", "ns/m0");
    let found = check(&story.lines, &story.writes);
    let told = found.first().unwrap().to_string();
    assert!(told.starts_with("weaker than before at 2026-01-01T00:00:11"), "{told}");
    assert!(told.contains("survived 1 failures and survives 0: [m0] left"), "{told}");
    assert!(told.contains("before: m0 voter, leads, index 10; m1 voter, index 10;"), "{told}");
    assert!(told.ends_with("we wrote: 2026-01-01T00:00:10.000Z patch etcdclusters/status ns/e: 200"), "{told}");
}

#[test]
fn faults_are_read_as_they_are_written() {
    let story = three().fault(&[1], Some(5)).over(&[1]).disk(1, 0).process(1, 3).late();
    for line in &story.lines {
        let text = serde_json::to_string(line).unwrap();
        assert_eq!(&serde_json::from_str::<crate::observer::record::Line>(&text).unwrap(), line, "{text}");
    }
    let fault = serde_json::to_value(Fault::default()).unwrap();
    assert_eq!(fault["until"], serde_json::Value::Null);
}
