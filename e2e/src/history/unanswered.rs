//! Writes that were not answered, and whether each of them was under way when something interrupted clients.

use super::record::Clock;
use crate::observer::Interruption;
use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use std::fmt::{self, Display};

/// A write that was not answered, or that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// When it was made.
    pub from: Timestamp,
    /// When the client knew that there is no answer.
    pub to: Timestamp,
    /// What the client knows. If the client writes to etcd, this begins with the endpoint.
    pub why: String,
}

impl Unanswered {
    /// A write of a history with this clock, from its call to its outcome.
    pub(super) fn of(clock: &Clock, (call, returned): (i64, i64), why: &str) -> Self {
        Self { from: clock.at(call), to: clock.at(returned), why: why.to_owned() }
    }

    fn is_explained_by(&self, it: &Interruption) -> bool {
        let concerns = it.endpoint.as_ref().is_none_or(|endpoint| self.why.starts_with(&format!("{endpoint}: ")));
        concerns && self.from <= it.to && it.from <= self.to
    }
}

/// Checks that each of these writes was under way at an interruption.
///
/// # Errors
/// With each write that was not, and all interruptions.
pub fn each_is_explained(writes: &[Unanswered], interruptions: &[Interruption]) -> Result<()> {
    let is_explained = |write: &&Unanswered| interruptions.iter().any(|it| write.is_explained_by(it));
    let left: Vec<&Unanswered> = writes.iter().filter(|write| !is_explained(write)).collect();
    ensure!(
        left.is_empty(),
        "nothing interrupted clients during {} of {} writes without an answer:{}\nthis did at other times:{}",
        left.len(),
        writes.len(),
        listed(&left),
        listed(interruptions)
    );
    Ok(())
}

fn listed(all: &[impl Display]) -> String {
    all.iter().map(|one| format!("\n  {one}")).collect()
}

impl Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} to {:.3}: {}", self.from, self.to, self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: &str = "https://10.0.0.1:2379";
    const OTHER: &str = "https://10.0.0.11:2379";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_write_is_explained_by_what_happens_while_it_is_under_way() {
        let moves = Interruption { what: "leadership moves".to_owned(), from: at(10), to: at(12), endpoint: None };
        let dead = Interruption {
            what: "it is published".to_owned(),
            from: at(20),
            to: at(30),
            endpoint: Some(DEAD.to_owned()),
        };
        for (what, endpoint, from, to, expected) in [
            ("before", OTHER, 7, 9, false),
            ("until it begins", OTHER, 8, 10, true),
            ("in between", OTHER, 11, 11, true),
            ("all along", OTHER, 9, 13, true),
            ("when it ends", OTHER, 12, 14, true),
            ("after", OTHER, 13, 14, false),
            ("to the endpoint that leads nowhere", DEAD, 25, 26, true),
            ("to that endpoint, later", DEAD, 31, 32, false),
            ("to another endpoint", OTHER, 25, 26, false),
        ] {
            let write = Unanswered { from: at(from), to: at(to), why: format!("{endpoint}: no answer within 3 s") };
            let result = each_is_explained(&[write], &[moves.clone(), dead.clone()]);
            assert_eq!(result.is_ok(), expected, "{what}: {result:?}");
        }
    }

    #[test]
    fn an_error_has_the_writes_that_are_left_and_everything_that_happened() {
        let write = |from| Unanswered { from: at(from), to: at(from + 1), why: format!("{OTHER}: refused") };
        let moves = Interruption { what: "leadership moves".to_owned(), from: at(10), to: at(12), endpoint: None };
        let error = each_is_explained(&[write(10), write(70)], &[moves]).unwrap_err().to_string();
        let expected = "nothing interrupted clients during 1 of 2 writes without an answer:\n  \
                        1970-01-01T00:01:10.000Z to 1970-01-01T00:01:11.000Z: https://10.0.0.11:2379: refused\n\
                        this did at other times:\n  1970-01-01T00:00:10.000Z to 1970-01-01T00:00:12.000Z: leadership moves";
        assert_eq!(error, expected);
    }
}
