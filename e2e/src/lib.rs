//! The test bed: real parts, in a world of their own.
//!
//! * [`tools`] builds etcd, Kubernetes and Cluster API from pinned Go modules and keeps them in a cache.
//! * [`world`] puts the current program into namespaces of its own, with or without root, so that ports, mounts and
//!   processes never meet the host's or another run's, and all of it ends with its first process.
//! * [`plane`] starts a management plane in a world: etcd, kube-apiserver, kube-controller-manager and unmodified
//!   Cluster API managers, each a plain process.
//! * [`bed`] adds the local infrastructure and this project's manager, and the vocabulary of scenarios about clusters.
//! * [`faults`] puts our manager behind a proxy, and lets faults happen at exact places.
//! * [`docker`] is a bed with containers: a Docker daemon in the world, and Cluster API's docker infrastructure.
//! * [`history`] writes to etcd all the time, records every request, and lets etcd's own judge check the record.
//! * [`infrastructure`] is the choice between local and docker, for the demo and the benchmarks.
//! * [`observer`] watches a bed from outside, and judges what has happened there.
//! * [`simulated`] has machines and members so small that thousands of them fit into one process.
//! * [`scenarios`] runs scenarios, in several worlds at once.
//! * [`own_release`] makes a release of this checkout, and [`clusterctl`] installs one.
//! * [`malformed`] makes documents of our kinds that are probably wrong.
//! * [`dashboard`] draws the panels of a dashboard from what Prometheus answers.
//! * [`process`], [`until`], [`apply`] and [`tls`] are the building blocks of scenarios.

pub mod apply;
pub mod bed;
pub mod bench;
pub mod cache;
pub mod clusterctl;
pub mod dashboard;
pub mod demo;
pub mod docker;
mod evidence;
pub mod faults;
pub mod history;
pub mod infrastructure;
pub mod malformed;
pub mod observer;
pub mod own_release;
mod packet_filter;
pub mod pages;
mod percentile;
pub mod plane;
pub mod process;
pub mod scenarios;
pub mod simulated;
pub mod tls;
pub mod tools;
pub mod until;
pub mod world;
