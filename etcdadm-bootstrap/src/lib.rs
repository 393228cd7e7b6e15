//! EtcdadmConfig to bootstrap data: makes the Secret from which a Machine becomes an etcd member.
//!
//! One Machine of a cluster initializes etcd, the others join it. Which one it is, is settled by a ConfigMap that only
//! one of them can create; whether the cluster is initialized, by the Secret that an etcd provider makes then.

pub mod build;
mod controller;
mod execute;
#[cfg(test)]
mod fixtures;
mod mappers;
mod observation;
mod observe;
mod plan;
mod status;

pub use controller::run;

/// Name of the controller: its field manager, and what it is called in events, logs and metrics.
pub const CONTROLLER: &str = "etcdadm-bootstrap";
