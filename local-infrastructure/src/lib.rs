//! Machines for Cluster API that are made of Linux namespaces on this computer, for experiments and for tests.
//!
//! This is a regular infrastructure provider: LocalCluster, LocalMachine and LocalMachineTemplate satisfy Cluster API's
//! contracts v1beta1 and v1beta2. A machine is a set of namespaces on a bridge, with its own address, root and host
//! name. It boots its bootstrap data with the real cloud-init, and runs real processes. [`machine::Machines`] is for
//! programs that want to cause what can happen to machines.

pub mod address;
pub mod cli;
mod cluster;
mod context;
mod controller;
pub mod crd;
mod events;
mod execute;
pub mod hardware;
pub mod image;
pub mod init;
pub mod machine;
mod mappers;
pub mod observation;
mod observe;
pub mod plan;
pub mod reservations;
pub mod run;
mod start;
mod status;
mod write;
