//! Whether one store that loses nothing could have given the answers that writers and readers got from an API server.
//!
//! Every update names the version that it replaces, so the versions of an object form a chain of growing numbers.

use std::collections::{BTreeMap, BTreeSet};

/// One request about one object. Times are nanoseconds since the history began.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The number of the writer.
    pub client: usize,
    /// The object's name.
    pub object: String,
    /// The request.
    pub request: Request,
    /// When it was made.
    pub call: i64,
    /// Its outcome.
    pub outcome: Outcome,
    /// When the outcome was known.
    pub returned: i64,
    /// Whether it belongs to the second try of a write that was not answered.
    pub again: bool,
}

/// A request about an object. No two writes write the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Creates it.
    Create {
        /// Its value.
        value: String,
    },
    /// Replaces it.
    Update {
        /// The resource version that is replaced.
        base: u64,
        /// Its new value.
        value: String,
    },
    /// Reads it, alone or with all others.
    Read,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object as it was read, or as it is after the write.
    Ok {
        /// Its resource version.
        version: u64,
        /// Its value.
        value: String,
    },
    /// There is no such object.
    Missing,
    /// A write that did not happen: another one came before.
    Refused(String),
    /// It may or may not have happened.
    Unknown(String),
}

/// What is wrong with a history, in one sentence each; empty if all is well. A history never deletes objects.
pub fn violations(operations: &[Operation]) -> Vec<String> {
    let mut by_object: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_object.entry(&operation.object).or_default().push(operation);
    }
    let mut found = Vec::new();
    for (object, mut operations) in by_object {
        operations.sort_by_key(|operation| operation.call);
        let checks = [goes_back(&operations), contradicts_itself(&operations), loses_an_update(&operations)];
        found.extend(checks.into_iter().flatten().map(|violation| format!("{object}: {violation}")));
    }
    found
}

/// A request that begins after a version was seen sees that version or a later one.
fn goes_back(operations: &[&Operation]) -> Vec<String> {
    let mut found = Vec::new();
    for operation in operations {
        let before = operations.iter().filter(|other| other.returned < operation.call);
        let Some(known) = before.filter_map(|other| other.version()).max() else { continue };
        match (&operation.outcome, operation.is_write()) {
            (Outcome::Missing, _) => found.push(format!("version {known} was seen, and then no object: {operation:?}")),
            (Outcome::Ok { version, .. }, false) if *version < known => {
                found.push(format!("version {known} was seen, and then an older one: {operation:?}"));
            }
            (Outcome::Ok { version, .. }, true) if *version <= known => {
                found.push(format!("version {known} was seen, and then a write made an older one: {operation:?}"));
            }
            _ => {}
        }
    }
    found
}

/// A version has one value, and every value that is read comes from a write that was not refused.
fn contradicts_itself(operations: &[&Operation]) -> Vec<String> {
    let written: BTreeMap<&str, &Operation> =
        operations.iter().filter_map(|operation| Some((operation.writes()?, *operation))).collect();
    let mut values: BTreeMap<u64, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for operation in operations {
        let Outcome::Ok { version, value } = &operation.outcome else { continue };
        let known = *values.entry(*version).or_insert(value);
        if known != value {
            found.push(format!("version {version} is {known:?} and {value:?}: {operation:?}"));
        }
        if operation.writes().is_some_and(|wanted| wanted != value) {
            found.push(format!("something else was written than was asked for: {operation:?}"));
        }
        match written.get(value.as_str()) {
            None => found.push(format!("nobody has written {value:?}: {operation:?}")),
            Some(write) if matches!(write.outcome, Outcome::Refused(_) | Outcome::Missing) => {
                found.push(format!("a write that was refused has happened: {write:?}, seen by {operation:?}"));
            }
            Some(write) if write.call > operation.returned => {
                found.push(format!("{value:?} was seen before it was written: {operation:?}"));
            }
            Some(_) => {}
        }
    }
    found
}

/// An update replaces the version that it names. Any version between that one and the new one is lost.
fn loses_an_update(operations: &[&Operation]) -> Vec<String> {
    let mut made: BTreeMap<&str, u64> = BTreeMap::new();
    let mut versions = BTreeSet::new();
    for operation in operations {
        if let Outcome::Ok { version, value } = &operation.outcome {
            // If the answer to a write was lost, reads of its value show its version.
            made.entry(value).or_insert(*version);
            versions.insert(*version);
        }
    }
    let mut found = Vec::new();
    for operation in operations {
        let (base, value) = match &operation.request {
            Request::Update { base, value } => (*base, value),
            Request::Create { value } => (0, value),
            Request::Read => continue,
        };
        let Some(&version) = made.get(value.as_str()) else { continue };
        if version <= base {
            found.push(format!("version {version} replaces {base}, which is not older: {operation:?}"));
        } else if let Some(lost) = versions.range(base + 1..version).next_back() {
            found.push(format!("version {version} replaces {base}, and {lost} between them is lost: {operation:?}"));
        }
    }
    found
}

impl Operation {
    /// The value that it wants to write.
    fn writes(&self) -> Option<&str> {
        match &self.request {
            Request::Create { value } | Request::Update { value, .. } => Some(value),
            Request::Read => None,
        }
    }

    /// Whether it wants to write.
    pub(super) fn is_write(&self) -> bool {
        self.writes().is_some()
    }

    fn version(&self) -> Option<u64> {
        if let Outcome::Ok { version, .. } = self.outcome { Some(version) } else { None }
    }
}

#[cfg(test)]
mod tests;
