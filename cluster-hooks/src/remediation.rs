//! A separate controller that replaces control-plane nodes if a MachineHealthCheck wants that.
//!
//! A KubeadmControlPlane replaces them itself. Since Cluster API 1.13.0, it first checks its own etcd, even if etcd is
//! external and there is none to check, and so defers the remediation forever. What it has checked before that point
//! still holds. What it would check after that point is checked here: the state of etcd, and that another API server is
//! left.
//!
//! This controller can be switched off and removed as soon as Cluster API no longer defers the remediation when etcd is
//! external.

mod controller;
mod execute;
mod observation;
mod observe;
mod plan;

pub use controller::run;
