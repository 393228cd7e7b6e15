//! Turns an EtcdadmConfig into bootstrap data: makes the Secret from which a Machine becomes an etcd member.
//!
//! One Machine of a cluster initializes etcd, and the others join it. A ConfigMap that only one of them can create
//! decides which one initializes. A Secret that the etcd provider creates afterwards says that etcd is initialized.

pub mod build;
mod context;
mod controller;
mod execute;
#[cfg(test)]
mod fixture;
mod mappers;
mod observation;
mod observe;
mod plan;
mod status;

pub use controller::run;

/// Name of the controller in events, logs and metrics, and of its field manager.
pub const CONTROLLER: &str = "etcdadm-bootstrap";
