//! The Cluster hook: hands the etcd that a Cluster names over to its control plane, and takes it away in time when the
//! Cluster is deleted. It knows etcd providers by the etcd-provider contract alone (`docs/etcd-provider-contract.md`).
//!
//! What it does, and in which order, is in `docs/cluster-hooks.md`. The flow of one reconcile:
//!
//! ```text
//! watch event -> observe -> plan -> read or execute -> (again, until nothing is left to do) -> status
//! ```

mod adapter;
mod build;
mod context;
mod controller;
mod execute;
mod mappers;
mod observation;
mod observe;
mod plan;
pub mod remediation;
mod status;

#[cfg(test)]
mod fixture;

pub use controller::run;
