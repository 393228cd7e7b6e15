//! The requests that this program sends to etcd.

mod client;
mod failure;

pub use client::{Cluster, Progress};
pub use failure::Failure;

/// A member as the cluster lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its ID.
    pub id: u64,
    /// Its name; empty until it has started and published the name.
    pub name: String,
    /// Where the other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; empty until it has started.
    pub client_urls: Vec<String>,
    /// Whether it is a learner.
    pub learner: bool,
}

impl Member {
    /// Whether it has ever started and published its name.
    pub fn has_started(&self) -> bool {
        !self.name.is_empty()
    }
}

/// The cluster's own view of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The cluster's ID.
    pub cluster_id: u64,
    /// Every member, started or not.
    pub members: Vec<Member>,
}
