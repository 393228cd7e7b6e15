//! Flags that this program does not know by name, but whose names show that they can do no harm. Cluster API's managers
//! get such flags with every minor version, and configurations for all providers soon have them. They have no effect,
//! and are logged like those in [`super::ignored`].
//!
//! Any other unknown flag is an error. So is a flag that looks like a misspelled flag with an effect.

use super::ignored::{NO_LIMIT, NO_MIGRATION, NO_PROFILER, NO_WEBHOOKS, NO_WORKLOAD, OTHER_LOGS, is_ignored};
use super::values;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use std::ffi::OsString;

/// How the names of flags end whose value is a number, and why these flags have no effect.
const NUMBERS: [(&str, &str); 3] = [
    ("-burst", NO_LIMIT),
    ("-concurrency", "no controller of this manager reconciles such objects"),
    ("-qps", NO_LIMIT),
];

/// How the names of flags begin whose value may be anything, and why these flags have no effect.
const TEXTS: [(&str, &str); 7] = [
    ("clustercache-", NO_WORKLOAD),
    ("log-json-", OTHER_LOGS),
    ("log-text-", OTHER_LOGS),
    ("profiler-", NO_PROFILER),
    ("remote-", NO_WORKLOAD),
    ("skip-crd-migration-", NO_MIGRATION),
    ("webhook-", NO_WEBHOOKS),
];

/// An unknown name that differs by at most this many letters from the name of a flag with an effect counts as a
/// misspelling.
const MISTAKE: usize = 2;

/// A command line, divided into what clap parses and what is ignored.
#[derive(Default)]
pub(super) struct Divided {
    /// What clap parses.
    pub known: Vec<OsString>,
    /// The unknown flags that do no harm, each with the reason why it has no effect.
    pub ignored: Vec<(String, &'static str)>,
}

/// Removes the unknown flags that do no harm, with their values, from a command line.
pub(super) fn divide(command: &mut Command, arguments: impl Iterator<Item = OsString>) -> Result<Divided, Error> {
    let names: Vec<String> = command.get_arguments().filter_map(Arg::get_long).map(str::to_owned).collect();
    let mut divided = Divided::default();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let Some((name, value)) = argument.to_str().and_then(flag) else {
            divided.known.push(argument);
            continue;
        };
        let Some(family) = Family::of(&name).filter(|_| !is_known(&name, &names)) else {
            divided.known.push(argument);
            continue;
        };
        // All arguments are flags. So what follows a flag is its value, unless it is a flag itself.
        let follows = |next: &OsString| !next.to_string_lossy().starts_with('-');
        let value = value.or_else(|| Some(arguments.next_if(follows)?.to_string_lossy().into_owned()));
        if family.is_number
            && let Err(expected) = values::number(&value.unwrap_or_default())
        {
            return Err(command.error(ErrorKind::ValueValidation, format!("invalid value for '--{name}': {expected}")));
        }
        divided.ignored.push((name, family.why));
    }
    Ok(divided)
}

/// Name and value of a flag.
fn flag(argument: &str) -> Option<(String, Option<String>)> {
    let text = argument.strip_prefix("--")?;
    Some(match text.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (text.to_owned(), None),
    })
}

struct Family {
    is_number: bool,
    why: &'static str,
}

impl Family {
    fn of(name: &str) -> Option<Self> {
        let number = NUMBERS.iter().find(|(end, _)| name.ends_with(*end)).map(|(_, why)| (true, *why));
        let text = || TEXTS.iter().find(|(begin, _)| name.starts_with(*begin)).map(|(_, why)| (false, *why));
        number.or_else(text).map(|(is_number, why)| Self { is_number, why })
    }
}

/// Whether the name is that of a flag, or nearly that of a flag with an effect.
fn is_known(name: &str, names: &[String]) -> bool {
    names.iter().any(|known| known == name || (!is_ignored(known) && distance(known, name) <= MISTAKE))
}

/// How many letters have to be inserted, removed or replaced to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], index + 1);
        for (column, there) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != *there);
            before = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(before + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn letters_that_differ_are_counted() {
        for (one, other, expected) in
            [("", "", 0), ("", "ab", 2), ("qps", "qps", 0), ("burst", "brust", 2), ("cluster", "clusters", 1)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
        assert!(distance("machine-concurrency", "cluster-concurrency") > 2);
    }
}
