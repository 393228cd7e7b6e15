//! Machines for Cluster API made of Linux namespaces on this computer, for trying things out and for tests.
//!
//! An infrastructure provider like any other: LocalCluster, LocalMachine and LocalMachineTemplate satisfy Cluster API's
//! contracts v1beta1 and v1beta2. A machine is a set of namespaces on a bridge with an address, a root and a host name of
//! its own; it boots its bootstrap data with the real cloud-init and runs real processes. [`machine::Machines`] is for
//! those who want to do to a machine what happens to machines.

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
