//! The text of a page.

use super::{PAGE, timeline};
use crate::observer::rules::check;
use crate::observer::story::{Story, VOTER};

/// Three voters that answer for ten seconds.
fn three() -> Story {
    Story::of(3).list(&[(0, VOTER), (1, VOTER), (2, VOTER)]).answer(&[0, 1, 2]).after(10)
}

/// The page of a story, each of its lines with one space between the words.
fn page(story: &Story) -> Vec<String> {
    let violations = check(&story.lines, &story.writes);
    let text = timeline(&story.lines, &story.writes, &violations);
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Checks that the page has these lines, in this order.
fn has(page: &[String], wanted: &[&str]) {
    let mut lines = page.iter();
    for line in wanted {
        assert!(lines.any(|found| found == line), "{line:?} is not where it should be:\n{}", page.join("\n"));
    }
}

#[test]
fn our_writes_faults_and_what_members_say_stand_side_by_side() {
    let story = three().fault(&[1], None).write("delete", "machines", "ns/m1").silent(1).after(60);
    let story = story.announced(1).list(&[(0, VOTER), (2, VOTER)]).answer(&[0, 2]);
    let page = page(&story);
    assert!(page[0].starts_with("a record: seconds since 2026-01-01T00:00:00"), "{}", page[0]);
    has(
        &page,
        &[
            "ns/e",
            "ns/m0 ns/m1 ns/m2",
            "10.000 V* 10 V 10 V 10 we: delete machines ns/m1",
            "10.000 V* 10 V 10 V 10 FAULT: a fault",
            "10.000 V* 10 V- V 10 ns/m1 is silent: it is silent",
            "70.000 V* 10 V- V 10 operation: RemoveMember 1",
            "70.000 V* 11 - V 10 m1 has left",
        ],
    );
}

#[test]
fn a_violation_stands_where_it_began_and_other_clusters_are_left_out() {
    let alone = page(&three().beside_another());
    has(&alone, &["ns/e", "other/e"]);
    let page = page(&three().beside_another().silent(1).after(11));
    has(&page, &["10.000 V* 10 V 10 V 10 VIOLATION, silent voter: voter m1 is silent, and no scenario has made it so"]);
    assert!(!page.contains(&"other/e".to_owned()), "{}", page.join("\n"));
}

#[test]
fn what_was_done_to_a_manager_stands_where_its_clusters_are() {
    let page = page(&three().note("it is killed", "ns").note("another is killed", "other").note("all are killed", ""));
    has(&page, &["10.000 V* 10 V 10 V 10 it is killed", "10.000 V* 10 V 10 V 10 all are killed"]);
    assert!(!page.iter().any(|line| line.contains("another is killed")), "{}", page.join("\n"));
}

#[test]
fn what_does_not_fit_on_a_page_is_left_out_the_least_interesting_first() {
    let mut story = three();
    for number in 0..2 * PAGE {
        story = story.write("patch", "machines", &format!("ns/x{number}"));
    }
    let page = page(&story.silent(1).after(11));
    has(&page, &["10.000 V* 10 V- V 10 ns/m1 is silent: it is silent"]);
    let rows = page.iter().filter(|line| line.contains(" V* 10 ") || line.contains(" is there")).count();
    assert!(rows <= PAGE, "{rows} rows:\n{}", page.join("\n"));
    assert!(page.iter().any(|line| line.ends_with("rows left out)")), "{}", page.join("\n"));
    assert!(page.iter().any(|line| line.contains("VIOLATION, silent voter")), "{}", page.join("\n"));
}

#[test]
fn the_same_write_again_is_one_row_and_a_refusal_has_its_code() {
    let mut story = three();
    for _ in 0..3 {
        story = story.write("patch", "machines", "ns/m1");
    }
    if let Some(last) = story.writes.last_mut() {
        (last.code, last.name, last.fields) = (409, "ns/m2".to_owned(), vec!["spec.replicas".to_owned()]);
    }
    let page = page(&story.after(1));
    let ours: Vec<&String> = page.iter().filter(|line| line.contains("we: patch")).collect();
    assert_eq!(ours.len(), 2, "{}", page.join("\n"));
    assert!(ours[0].contains("ns/m1 (again, until 2026-01-01T00:00:10"), "{}", ours[0]);
    assert!(ours[1].ends_with("we: patch machines ns/m2 (spec.replicas): 409"), "{}", ours[1]);
}

#[test]
fn alarms_and_the_readiness_of_api_servers_are_told() {
    let story = three().server_is(true).complains(1, "memberID:1 alarm:NOSPACE").server_is(false).after(5).answer(&[1]);
    has(
        &page(&story),
        &[
            "10.000 V* 10 V 10 V 10 API server ns/server is ready, with https://10.0.0.0:2379",
            "10.000 V* 10 V 10 V 10 ns/m1 complains: memberID:1 alarm:NOSPACE",
            "10.000 V* 10 V 10 V 10 API server ns/server is not ready, with https://10.0.0.0:2379",
            "15.000 V* 10 V 10 V 10 ns/m1 complains of nothing any more",
        ],
    );
}
