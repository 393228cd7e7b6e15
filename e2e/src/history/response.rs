//! Answers of etcd, in the JSON form of etcd's own robustness suite. The suite compares every part of an answer, so an
//! empty list differs from a missing one.

use super::request::Value;
use serde::Serialize;

/// An answer of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Response {
    /// To [`Range`](crate::history::request::Request::Range).
    Range {
        /// What was read.
        #[serde(rename = "Range")]
        range: Found,
        /// The store's revision.
        #[serde(rename = "Revision")]
        revision: i64,
    },
    /// To [`Txn`](crate::history::request::Request::Txn).
    Txn {
        /// What was done.
        #[serde(rename = "Txn")]
        txn: Done,
        /// The store's revision afterwards.
        #[serde(rename = "Revision")]
        revision: i64,
    },
    /// To [`LeaseGrant`](crate::history::request::Request::LeaseGrant).
    LeaseGrant {
        /// Nothing.
        #[serde(rename = "LeaseGrant")]
        granted: Nothing,
        /// The store's revision.
        #[serde(rename = "Revision")]
        revision: i64,
    },
    /// To [`LeaseRevoke`](crate::history::request::Request::LeaseRevoke).
    LeaseRevoke {
        /// Nothing.
        #[serde(rename = "LeaseRevoke")]
        revoked: Nothing,
        /// The store's revision afterwards.
        #[serde(rename = "Revision")]
        revision: i64,
    },
}

/// Keys that a read found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Found {
    /// The keys, sorted.
    #[serde(rename = "KVs")]
    pub keys: Vec<KeyValue>,
    /// How many there are, those beyond the limit included.
    pub count: i64,
}

/// The result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Done {
    /// Whether a condition did not hold.
    pub failure: bool,
    /// The results of the operations in the branch that was taken.
    pub results: Vec<OpResult>,
}

/// The result of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct OpResult {
    /// Keys that were found; `None` if the operation is not a read.
    #[serde(rename = "KVs", skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<KeyValue>>,
    /// How many were found.
    pub count: i64,
    /// How many were deleted.
    pub deleted: i64,
}

/// A key and what was read of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Revision of its last change.
    pub mod_revision: i64,
    /// How many times it was written since it was created.
    pub version: i64,
}

/// An empty JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nothing {}

impl Response {
    /// The store's revision that the answer names.
    pub fn revision(&self) -> i64 {
        match self {
            Self::Range { revision, .. }
            | Self::Txn { revision, .. }
            | Self::LeaseGrant { revision, .. }
            | Self::LeaseRevoke { revision, .. } => *revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    #[test]
    fn what_is_not_a_read_has_no_list_of_keys_and_a_read_that_finds_nothing_has_an_empty_one() {
        assert_eq!(to_value(OpResult::default()).unwrap(), json!({"Count": 0, "Deleted": 0}));
        let found = OpResult { keys: Some(Vec::new()), ..OpResult::default() };
        assert_eq!(to_value(found).unwrap(), json!({"KVs": [], "Count": 0, "Deleted": 0}));
    }

    #[test]
    fn a_lease_is_answered_with_nothing_but_a_revision() {
        let granted = Response::LeaseGrant { granted: Nothing {}, revision: 4 };
        assert_eq!(to_value(granted).unwrap(), json!({"LeaseGrant": {}, "Revision": 4}));
    }
}
