//! What to do about a config. Total and pure.

mod role;
#[cfg(test)]
mod tests;

use crate::build::{self, Bootstrap, CertificateAuthority, objects};
use crate::observation::{DataSecret, Live, Lock, Observation};
use api::conditions::reasons;
use api::names;
use controller_support::loose::{ClusterView, MachineView};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use std::fmt;
use std::time::Duration;

/// How soon to look again after something that is not watched: at first, and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Plan {
    /// The bootstrap data is there. It is left as it is for good.
    Steady,
    /// Something is not there yet.
    Wait(Waiting),
    /// Somebody has to change something.
    Block(Waiting),
    /// A write, and then another look.
    Do(Step),
}

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// One of [`reasons`].
    pub reason: &'static str,
    /// For people: what is missing, and where.
    pub message: String,
    /// When to look again, for what is not watched.
    pub again: Option<Duration>,
}

/// A write.
#[derive(Clone, PartialEq)]
pub(crate) enum Step {
    /// Create the lock.
    TakeLock(Box<ConfigMap>),
    /// Make the lock ours, if it is still in this version.
    TakeOverLock {
        /// The lock, held by us.
        lock: Box<ConfigMap>,
        /// Name of the Machine that held it.
        from: String,
        /// The version that was read.
        resource_version: String,
    },
    /// Create the bootstrap Secret.
    CreateDataSecret {
        /// The Secret.
        secret: Box<Secret>,
        /// Whether the Machine initializes the cluster.
        init: bool,
    },
}

/// For logs: nothing of the Secret's content.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakeLock(lock) => write!(f, "create init lock {}", lock.name_any()),
            Self::TakeOverLock { lock, from, .. } => write!(f, "take init lock {} over from {from}", lock.name_any()),
            Self::CreateDataSecret { secret, init } => {
                write!(f, "create bootstrap Secret {} to {}", secret.name_any(), if *init { "init" } else { "join" })
            }
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What every bootstrap needs, and does not cost a request to know.
pub(crate) struct Ready<'a> {
    pub machine: &'a MachineView,
    pub cluster: &'a ClusterView,
    pub authority: &'a CertificateAuthority,
}

/// What to do about what was observed.
pub(crate) fn plan(observation: &Observation) -> Plan {
    let ready = match prerequisites(observation) {
        Ok(ready) => ready,
        Err(plan) => return plan,
    };
    let role = match role::role(observation, &ready) {
        Ok(role) => role,
        Err(plan) => return plan,
    };
    let secrets = match &observation.secrets {
        Ok(secrets) => secrets,
        Err(missing) => {
            let what = match &missing.key {
                Some(key) => format!("Secret {} has no key {key}", missing.secret),
                None => format!("there is no Secret {}", missing.secret),
            };
            return wait_unwatched(observation, reasons::WAITING_FOR_FILE_SECRET, format!("{}: {what}", missing.field));
        }
    };
    // Before the lock is taken: a config that cannot be rendered must not keep others from initializing.
    let bootstrap = Bootstrap {
        member: &ready.machine.name,
        role: &role,
        authority: ready.authority,
        spec: &observation.config.spec,
        secrets,
    };
    let data = match build::render(&bootstrap) {
        Ok(data) => data,
        Err(invalid) => return block(reasons::INVALID_SPEC, invalid.to_string()),
    };
    let init = role == build::Role::Init;
    if init && let Some(plan) = initializing(observation, &ready) {
        return plan;
    }
    let secret = Box::new(objects::data_secret(&observation.config, ready.cluster, ready.machine, data));
    Plan::Do(Step::CreateDataSecret { secret, init })
}

/// What stands in the way of a bootstrap, as far as it can be told without a request.
pub(crate) fn prerequisites(observation: &Observation) -> Result<Ready<'_>, Plan> {
    match &observation.data_secret {
        DataSecret::Ours => return Err(Plan::Steady),
        _ if observation.paused() => return Err(wait(reasons::PAUSED, "the Cluster or the config is paused")),
        DataSecret::Foreign(owner) => {
            let message = format!(
                "Secret {} belongs to {owner}: the bootstrap data cannot have this name. Remove it, or rename the Machine",
                observation.config.name_any()
            );
            return Err(block_unwatched(observation, reasons::NAME_TAKEN, message));
        }
        DataSecret::Absent => {}
    }
    if let Some(answer) = &observation.refused {
        return Err(block_unwatched(
            observation,
            reasons::REFUSED,
            format!("the bootstrap Secret was refused: {answer}"),
        ));
    }
    let Some(machine) = &observation.machine else {
        return Err(wait(reasons::WAITING_FOR_MACHINE, "no Machine owns this config yet"));
    };
    if machine.deleting {
        return Err(wait(reasons::DELETING, format!("Machine {} is being deleted", machine.name)));
    }
    let Some(cluster) = &observation.cluster else {
        let message = format!("there is no Cluster {}", observation.cluster_name().unwrap_or_default());
        return Err(wait(reasons::WAITING_FOR_CLUSTER, message));
    };
    if cluster.deleting {
        return Err(wait(reasons::DELETING, format!("Cluster {} is being deleted", cluster.name)));
    }
    // The data of an etcd member depends on nothing of the Cluster's infrastructure, so it does not wait for that: the
    // Machine's infrastructure does.
    let secret = names::ca_secret(&cluster.name);
    match &observation.authority {
        None => {
            let message = format!(
                "there is no Secret {secret} with the label {} and etcd's CA (tls.crt, tls.key)",
                names::ETCD_CLUSTER_LABEL
            );
            Err(wait(reasons::WAITING_FOR_CERTIFICATES, message))
        }
        Some(Err(invalid)) => Err(block(reasons::SECRET_INVALID, format!("Secret {secret}: {invalid}"))),
        Some(Ok(authority)) => Ok(Ready { machine, cluster, authority }),
    }
}

/// What has to happen before this Machine may initialize. `None`: it may.
fn initializing(observation: &Observation, ready: &Ready<'_>) -> Option<Plan> {
    let lock = || Box::new(objects::lock(ready.cluster, ready.machine));
    let name = names::init_lock(&ready.cluster.name);
    match &observation.lock {
        Lock::Free => Some(Plan::Do(Step::TakeLock(lock()))),
        Lock::Held { holder, present: true, .. } => {
            let message = format!("Machine {holder} initializes the cluster; this one joins when that is done");
            Some(wait(reasons::WAITING_FOR_INITIALIZATION, message))
        }
        Lock::Held { holder, present: false, resource_version } => Some(Plan::Do(Step::TakeOverLock {
            lock: lock(),
            from: holder.clone(),
            resource_version: resource_version.clone(),
        })),
        Lock::Unreadable => {
            let message = format!(
                "ConfigMap {name} is no init lock: its key {} does not name a Machine. Remove it",
                objects::LOCK_INFORMATION
            );
            Some(block_unwatched(observation, reasons::NAME_TAKEN, message))
        }
        Lock::Ours => match &observation.live {
            Some(Live::NotInitialized) => None,
            Some(Live::Begun(machine)) => {
                let message = format!(
                    "Machine {machine} has data to initialize the cluster; this one joins when that is done, or takes its \
                     place when Machine {machine} is deleted"
                );
                Some(wait_unwatched(observation, reasons::WAITING_FOR_INITIALIZATION, message))
            }
            Some(Live::OwnerGone) => {
                let message = format!("the EtcdCluster of Machine {} is being deleted", ready.machine.name);
                Some(wait(reasons::DELETING, message))
            }
            Some(Live::Initialized) | None => {
                let message = format!(
                    "the cluster is initialized, and Secret {}, which says where it is, is not there",
                    names::init_secret(&ready.cluster.name)
                );
                Some(wait(reasons::WAITING_FOR_INITIALIZATION, message))
            }
        },
    }
}

fn wait(reason: &'static str, message: impl Into<String>) -> Plan {
    Plan::Wait(Waiting { reason, message: message.into(), again: None })
}

fn block(reason: &'static str, message: impl Into<String>) -> Plan {
    Plan::Block(Waiting { reason, message: message.into(), again: None })
}

fn wait_unwatched(observation: &Observation, reason: &'static str, message: String) -> Plan {
    Plan::Wait(Waiting { reason, message, again: Some(look_again(observation)) })
}

fn block_unwatched(observation: &Observation, reason: &'static str, message: String) -> Plan {
    Plan::Block(Waiting { reason, message, again: Some(look_again(observation)) })
}

/// The longer it has been waited, the longer the next look can wait. Needs no memory of its own.
fn look_again(observation: &Observation) -> Duration {
    (observation.waiting_for() / 4).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1)
}
