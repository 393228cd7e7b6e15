//! One Machine initializes etcd, and only once.
//!
//! Expected flow: take the lock, read live that nothing has been initialized, create the bootstrap Secret.
//!
//! Guarantees: only one Machine of a Cluster at a time holds the lock. No Machine gets data to initialize etcd while
//! another Machine has bootstrap data, or once the EtcdCluster records that etcd was initialized.
//!
//! Assumptions: if a Machine no longer exists, its bootstrap data is gone too. For the Machines of an EtcdCluster, the
//! EtcdCluster then knows whether etcd was initialized. Without an EtcdCluster, this is not known, so a person decides.

use super::prerequisites::Ready;
use super::{Plan, Step, block_unwatched, wait, wait_unwatched};
use crate::build::objects::{self, LOCK_INFORMATION, etcd_cluster_of};
use crate::observation::{Guard, Lock, Need, Observation};
use api::conditions::reasons;
use api::names;

/// `Ok`: the Machine may initialize. `Err`: what has to happen first.
pub(super) fn initialize(observation: &Observation, ready: &Ready<'_>) -> Result<(), Plan> {
    let take = || Box::new(objects::lock(ready.cluster, ready.machine));
    let (lock, init) = (names::init_lock(&ready.cluster.name), names::init_secret(&ready.cluster.name));
    match &observation.lock {
        Lock::Ours => guard(observation, ready),
        Lock::Free => Err(Plan::Do(Step::TakeLock(take()))),
        Lock::Unreadable => {
            let message = format!(
                "ConfigMap {lock} is not an init lock: its key {LOCK_INFORMATION} does not name a Machine. Delete it"
            );
            Err(block_unwatched(observation, reasons::NAME_TAKEN, message))
        }
        // Cluster API's kubeadm provider calls the lock of Cluster `X-etcd` what we call that of Cluster `X`.
        Lock::Foreign(other) => {
            let message = format!(
                "ConfigMap {lock} belongs to Cluster {other}: one of its Machines initializes Kubernetes. Machine {} \
                 initializes etcd when the ConfigMap is gone. Once Cluster {other} has a control plane, delete the \
                 ConfigMap",
                ready.machine.name
            );
            Err(block_unwatched(observation, reasons::NAME_TAKEN, message))
        }
        Lock::Held { exists: None, .. } => Err(Plan::Do(Step::Read(Need::LockHolder))),
        Lock::Held { holder, exists: Some(true), created, .. } => {
            let created = created.map(|at| format!(", created at {at:.0},")).unwrap_or_default();
            // No controller replaces a Machine before etcd has begun. Without an EtcdCluster, a person makes the
            // Secret.
            let then = match etcd_cluster_of(ready.machine) {
                Some(_) => "If that one never does, look at its console, and delete that Machine: another one \
                            initializes etcd then"
                    .to_owned(),
                None => format!(
                    "If etcd runs there, create Secret {init} with its client URLs (key clientUrls) and the cluster's ID (key \
                     clusterId). If it never does, look at that Machine's console, and delete it: this condition says then \
                     how to go on"
                ),
            };
            let message = format!(
                "Machine {} joins when Machine {}{created} has initialized etcd: it waits for Secret {init}. {then}",
                ready.machine.name, holder.machine_name
            );
            Err(wait(reasons::WAITING_FOR_INITIALIZATION, message))
        }
        Lock::Held { holder, exists: Some(false), .. } if etcd_cluster_of(ready.machine).is_none() => {
            let message = format!(
                "Machine {} was to initialize etcd and no longer exists; it is not known whether it has initialized \
                 etcd. If etcd has members, create Secret {init} with their client URLs (key clientUrls) and the \
                 cluster's ID (key clusterId), and this Machine then joins. If there is no data to keep, delete \
                 ConfigMap {lock}: a new, empty etcd is then initialized",
                holder.machine_name
            );
            Err(block_unwatched(observation, reasons::WAITING_FOR_INITIALIZATION, message))
        }
        Lock::Held { holder, resource_version, .. } => Err(Plan::Do(Step::TakeOverLock {
            lock: take(),
            from: holder.machine_name.clone(),
            resource_version: resource_version.clone(),
        })),
    }
}

fn guard(observation: &Observation, ready: &Ready<'_>) -> Result<(), Plan> {
    let machine = &ready.machine.name;
    match &observation.guard {
        None => Err(Plan::Do(Step::Read(Need::Guard))),
        Some(Guard::NotInitialized) => Ok(()),
        Some(Guard::Begun(other)) => {
            let message = format!(
                "Machine {other} has bootstrap data already; Machine {machine} joins when etcd is initialized, or \
                 initializes it when Machine {other} is deleted"
            );
            Err(wait_unwatched(observation, reasons::WAITING_FOR_INITIALIZATION, message))
        }
        Some(Guard::OwnerGone) => {
            let message =
                format!("the EtcdCluster of Machine {machine} is being deleted: etcd is not initialized for it");
            Err(wait(reasons::DELETING, message))
        }
        Some(Guard::Initialized) => {
            let message = format!(
                "etcd is initialized, but Secret {} with the client URLs of its members does not exist. The controller of the \
                 EtcdCluster makes it when a voter is healthy; without an EtcdCluster, create it (key clientUrls)",
                names::init_secret(&ready.cluster.name)
            );
            Err(wait(reasons::WAITING_FOR_INITIALIZATION, message))
        }
    }
}
