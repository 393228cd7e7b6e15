//! What clients request of etcd, in the JSON form of etcd's own robustness suite. In the suite's model, puts and
//! deletes are transactions of one operation.

use serde::Serialize;

/// What every key of a history begins with. Nothing else may write below it, or anywhere else in etcd.
pub const PREFIX: &str = "/history/";
/// The end of the range of keys that begin with [`PREFIX`].
const PREFIX_END: &str = "/history0";

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "Type")]
pub enum Request {
    /// Reads keys, linearizably.
    #[serde(rename = "range")]
    Range {
        /// Which keys.
        #[serde(rename = "Range")]
        range: Range,
    },
    /// Writes, and reads that go with them.
    #[serde(rename = "txn")]
    Txn {
        /// What to do.
        #[serde(rename = "Txn")]
        txn: Txn,
    },
    /// Grants a lease.
    #[serde(rename = "leaseGrant")]
    LeaseGrant {
        /// Which one.
        #[serde(rename = "LeaseGrant")]
        lease: Lease,
    },
    /// Revokes a lease, which deletes the keys that are attached to it.
    #[serde(rename = "leaseRevoke")]
    LeaseRevoke {
        /// Which one.
        #[serde(rename = "LeaseRevoke")]
        lease: Lease,
    },
}

/// The keys from `start` up to `end`, without `end` itself. If `end` is empty, only the key `start`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Range {
    /// The first key.
    pub start: String,
    /// The key after the last one, or empty.
    pub end: String,
    /// The most keys to return; 0 for all.
    pub limit: i64,
    /// The revision to read at; 0 for the present one.
    pub revision: i64,
}

/// Operations that happen atomically, depending on conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Txn {
    /// All of them have to hold.
    pub conditions: Vec<Condition>,
    /// What is done if they do.
    pub operations_on_success: Vec<Op>,
    /// What is done if they do not.
    pub operations_on_failure: Vec<Op>,
}

/// Holds if the last change of a key has this revision; 0 if the key does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Condition {
    /// The key.
    pub key: String,
    /// Revision of its last change.
    pub expected_revision: i64,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "Type")]
pub enum Op {
    /// Reads keys.
    #[serde(rename = "range-operation")]
    Range {
        /// Which ones.
        #[serde(rename = "Range")]
        range: Range,
    },
    /// Writes a key.
    #[serde(rename = "put-operation")]
    Put {
        /// What is written.
        #[serde(rename = "Put")]
        put: Put,
    },
    /// Deletes a key.
    #[serde(rename = "delete-operation")]
    Delete {
        /// Which one.
        #[serde(rename = "Delete")]
        delete: Delete,
    },
}

/// A key's new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Put {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// The lease that it is attached to, or 0.
    #[serde(rename = "LeaseID")]
    pub lease: i64,
}

/// A key to delete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Delete {
    /// The key.
    pub key: String,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lease {
    /// The ID that the client has chosen.
    #[serde(rename = "LeaseID")]
    pub id: i64,
}

/// A value of fewer than 20 bytes. The suite's form has only a hash of longer values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Value {
    /// The text.
    pub value: String,
}

impl Request {
    /// Reads one key.
    pub fn get(key: impl Into<String>) -> Self {
        Self::Range { range: Range { start: key.into(), ..Range::default() } }
    }

    /// Reads all keys, or the first `limit` of them if it is not 0.
    pub fn all(limit: i64) -> Self {
        Self::Range { range: Range { limit, ..Range::all() } }
    }

    /// Reads all keys as they were at a revision.
    pub fn past(revision: i64) -> Self {
        Self::Range { range: Range { revision, ..Range::all() } }
    }

    /// Writes one key, attached to `lease` if that is not 0.
    pub fn put(key: impl Into<String>, value: impl Into<String>, lease: i64) -> Self {
        Self::Txn { txn: Txn { operations_on_success: vec![Op::put(key, value, lease)], ..Txn::default() } }
    }

    /// Deletes one key.
    pub fn delete(key: impl Into<String>) -> Self {
        let delete = Op::Delete { delete: Delete { key: key.into() } };
        Self::Txn { txn: Txn { operations_on_success: vec![delete], ..Txn::default() } }
    }

    /// Writes one key if its last change has revision `expected` (0 if the key does not exist), and reads it otherwise.
    pub fn swap(key: &str, expected: i64, value: impl Into<String>) -> Self {
        let range = Range { start: key.to_owned(), ..Range::default() };
        Self::Txn {
            txn: Txn {
                conditions: vec![Condition { key: key.to_owned(), expected_revision: expected }],
                operations_on_success: vec![Op::put(key, value, 0)],
                operations_on_failure: vec![Op::Range { range }],
            },
        }
    }

    /// Grants a lease with this ID.
    pub fn grant(id: i64) -> Self {
        Self::LeaseGrant { lease: Lease { id } }
    }

    /// Revokes the lease with this ID.
    pub fn revoke(id: i64) -> Self {
        Self::LeaseRevoke { lease: Lease { id } }
    }

    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Range { .. } => true,
            Self::Txn { txn } => {
                let mut all = txn.operations_on_success.iter().chain(&txn.operations_on_failure);
                all.all(|operation| matches!(operation, Op::Range { .. }))
            }
            Self::LeaseGrant { .. } | Self::LeaseRevoke { .. } => false,
        }
    }
}

impl Range {
    fn all() -> Self {
        Self { start: PREFIX.to_owned(), end: PREFIX_END.to_owned(), ..Self::default() }
    }
}

impl Op {
    /// Writes one key.
    pub fn put(key: impl Into<String>, value: impl Into<String>, lease: i64) -> Self {
        Self::Put { put: Put { key: key.into(), value: Value { value: value.into() }, lease } }
    }
}

#[cfg(test)]
mod tests;
