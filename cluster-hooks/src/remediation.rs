//! A controller of its own: control-plane nodes that a MachineHealthCheck wants replaced.
//!
//! A KubeadmControlPlane replaces them itself. Since Cluster API 1.13.0 it looks at its own etcd first, also where etcd is
//! external and there is nothing to look at, and defers the remediation forever. What it has checked by then holds.
//! What it would have checked afterwards is checked here: how etcd is, and that another API server is left.
//!
//! It can go, and be switched off, as soon as Cluster API does not defer the remediation where etcd is external.

mod controller;
mod execute;
mod observation;
mod observe;
mod plan;

pub use controller::run;
