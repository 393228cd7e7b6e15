//! Whether what writers and readers saw through an API server can be true of one store that loses nothing.
//!
//! Every update names the version that it replaces, so the versions of an object are a chain, and numbers that grow.

use std::collections::{BTreeMap, BTreeSet};

/// One request about one object. Times are nanoseconds since the history has begun.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The object's name.
    pub object: String,
    /// What was asked.
    pub request: Request,
    /// When.
    pub call: i64,
    /// What came of it.
    pub outcome: Outcome,
    /// When that was known.
    pub returned: i64,
    /// Whether it belongs to the second try of a write that was not answered.
    pub again: bool,
}

/// What is asked about an object. No two writes write the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Makes it.
    Create {
        /// What is in it.
        value: String,
    },
    /// Replaces it.
    Update {
        /// The resource version that is replaced.
        base: u64,
        /// What is in it.
        value: String,
    },
    /// Reads it, alone or with all others.
    Read,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object as it was read, or as it is after the write.
    Ok {
        /// Its resource version.
        version: u64,
        /// What is in it.
        value: String,
    },
    /// There is no such object.
    Missing,
    /// A write that did not happen: another one came before.
    Refused(String),
    /// Nobody knows whether it happened.
    Unknown(String),
}

/// What is wrong with a history, in sentences; nothing if all is well. Objects are never deleted in it.
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

/// Whoever asks after somebody has seen a version sees that one or a later one.
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

/// A version has one value, and every value that is read was written by somebody whose write was not refused.
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

/// An update replaces the version that it names: what was between that one and its own is lost.
fn loses_an_update(operations: &[&Operation]) -> Vec<String> {
    let mut made: BTreeMap<&str, u64> = BTreeMap::new();
    let mut versions = BTreeSet::new();
    for operation in operations {
        if let Outcome::Ok { version, value } = &operation.outcome {
            // A write whose answer was lost is known by those who read its value.
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
