//! EtcdCluster -> Machines and membership.
//!
//! The flow is one way: watch event -> `observe` -> `plan` -> `execute` -> `status` -> requeue. `plan`, `build` and
//! `status` are pure: no client, no clock, no randomness.

pub mod alarms;
pub mod build;
mod context;
pub mod controller;
mod etcd_access;
mod etcds;
mod execute;
#[cfg(test)]
mod fixture;
mod mappers;
mod metrics;
pub mod observation;
mod observe;
mod pki;
pub mod plan;
pub mod prober;
mod put_off;
pub mod quorum;
pub mod roster;
pub mod status;

/// Name under which this controller writes, logs and reports.
pub const CONTROLLER: &str = "etcd-cluster-controller";

pub use controller::run;
