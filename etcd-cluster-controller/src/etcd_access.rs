//! Access to the members over TLS: status, linearizable reads, member list.
//!
//! Every request goes through etcd's JSON gateway rather than gRPC. The gateway allows a linearizable read of the
//! member list, which etcd-client's `member_list` does not, and one small HTTP client per cluster is cheap at thousands
//! of clusters.

mod client;
mod fault;
mod json;
mod request;

pub(crate) use client::Client;
pub(crate) use fault::Fault;
pub(crate) use request::{Expected, PeerCounters};

#[cfg(test)]
pub(crate) mod fake;
