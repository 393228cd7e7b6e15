//! Small histories, in order and out of order. By the times of `at`, a request ends before the next one begins.

use super::*;

fn at(time: i64, request: Request, outcome: Outcome) -> Operation {
    let (object, call) = ("a".to_owned(), 10 * time);
    Operation { client: 0, object, request, call, outcome, returned: call + 5, again: false }
}

fn ok(version: u64, value: &str) -> Outcome {
    Outcome::Ok { version, value: value.to_owned() }
}

fn create(value: &str) -> Request {
    Request::Create { value: value.to_owned() }
}

fn update(base: u64, value: &str) -> Request {
    Request::Update { base, value: value.to_owned() }
}

fn refused() -> Outcome {
    Outcome::Refused("conflict".to_owned())
}

fn unknown() -> Outcome {
    Outcome::Unknown("no answer".to_owned())
}

/// There is exactly one violation, and it begins with `expected`.
#[track_caller]
fn finds(operations: &[Operation], expected: &str) {
    let found = violations(operations);
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:#?}");
}

#[test]
fn a_chain_of_updates_is_fine_whatever_was_refused_or_is_unknown() {
    let operations = [
        at(0, Request::Read, Outcome::Missing),
        at(1, create("1"), ok(5, "1")),
        at(2, create("2"), refused()),
        at(3, update(5, "3"), unknown()),
        at(4, Request::Read, ok(9, "3")),
        at(5, update(5, "4"), refused()),
        at(6, update(9, "5"), ok(11, "5")),
        at(7, update(11, "6"), unknown()),
        at(8, Request::Read, ok(11, "5")),
    ];
    assert_eq!(violations(&operations), Vec::<String>::new());
}

#[test]
fn requests_at_the_same_time_may_see_either() {
    let mut write = at(1, update(5, "2"), ok(7, "2"));
    write.returned = 100;
    let operations =
        [at(0, create("1"), ok(5, "1")), write, at(2, Request::Read, ok(7, "2")), at(12, Request::Read, ok(7, "2"))];
    assert_eq!(violations(&operations), Vec::<String>::new());
    let mut early = operations;
    early[2] = at(2, Request::Read, ok(5, "1"));
    assert_eq!(violations(&early), Vec::<String>::new());
}

#[test]
fn an_object_that_was_there_is_missed() {
    let operations = [at(0, create("1"), ok(5, "1")), at(1, Request::Read, Outcome::Missing)];
    finds(&operations, "a: version 5 was seen, and then no object");
}

#[test]
fn a_read_does_not_go_back_in_time() {
    let operations =
        [at(0, create("1"), ok(5, "1")), at(1, update(5, "2"), ok(7, "2")), at(2, Request::Read, ok(5, "1"))];
    finds(&operations, "a: version 7 was seen, and then an older one");
}

#[test]
fn an_acknowledged_update_is_not_replaced_unseen() {
    let operations =
        [at(0, create("1"), ok(5, "1")), at(1, update(5, "2"), ok(7, "2")), at(2, update(5, "3"), ok(9, "3"))];
    finds(&operations, "a: version 9 replaces 5, and 7 between them is lost");
}

#[test]
fn nor_by_a_write_whose_answer_was_lost() {
    let operations = [
        at(0, create("1"), ok(5, "1")),
        at(1, update(5, "2"), ok(7, "2")),
        at(2, update(5, "3"), unknown()),
        at(3, Request::Read, ok(9, "3")),
    ];
    finds(&operations, "a: version 9 replaces 5, and 7 between them is lost");
}

#[test]
fn an_object_is_not_made_a_second_time() {
    let operations = [at(0, create("1"), ok(5, "1")), at(1, create("2"), ok(8, "2"))];
    finds(&operations, "a: version 8 replaces 0, and 5 between them is lost");
}

#[test]
fn a_version_has_one_value_and_values_have_writers() {
    let begin = at(0, create("1"), ok(5, "1"));
    let operations = [begin.clone(), at(1, update(5, "2"), ok(7, "2")), at(2, Request::Read, ok(7, "1"))];
    finds(&operations, "a: version 7 is \"2\" and \"1\"");
    finds(&[begin.clone(), at(1, Request::Read, ok(6, "x"))], "a: nobody has written \"x\"");
    let operations = [begin, at(1, update(5, "2"), refused()), at(2, Request::Read, ok(6, "2"))];
    finds(&operations, "a: a write that was refused has happened");
}

#[test]
fn other_objects_do_not_matter() {
    let mut other = at(1, Request::Read, Outcome::Missing);
    other.object = "b".to_owned();
    assert_eq!(violations(&[at(0, create("1"), ok(5, "1")), other]), Vec::<String>::new());
}
