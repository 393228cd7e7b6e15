//! The API of cluster-api-provider-etcdadm: custom resources, and every name that two parts must agree on.
//!
//! This crate has no client and no run time, so that the pure parts of the controllers can depend on it.

// kube's derive reads repeated `printcolumn(type_ = "string", …)` attributes; they are not duplicates.
#![allow(clippy::duplicated_attributes)]

pub mod admission;
pub mod conditions;
pub mod crds;
pub mod endpoints;
pub mod etcd_cluster;
pub mod etcdadm_config;
pub mod meta;
pub mod names;
pub mod version;

pub use etcd_cluster::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};
pub use etcdadm_config::{EtcdadmConfig, EtcdadmConfigSpec, EtcdadmConfigStatus, EtcdadmConfigTemplate};
