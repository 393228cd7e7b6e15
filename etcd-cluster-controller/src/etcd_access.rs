//! Talking to the members over TLS: status, linearizable reads, member list.
//!
//! Everything goes through etcd's JSON gateway rather than gRPC: it lets us ask for a linearizable member list, which
//! etcd-client's `member_list` does not, and one small HTTP client per cluster is cheap at thousands of clusters.

mod client;
mod fault;
mod json;
mod request;

pub(crate) use client::Client;
pub(crate) use fault::Fault;
pub(crate) use request::{Expected, PeerCounters};

#[cfg(test)]
pub(crate) mod fake;
