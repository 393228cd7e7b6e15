//! What to do next. Pure and total: the same observation always gives the same answer.
//!
//! The rules, in their order: what every bootstrap needs ([`prerequisites`]), init or join ([`role`]), the values of
//! Secrets, rendering, and finally the init lock for the first member ([`initialize`]), or a live read of the init
//! Secret for other members ([`join`]).

mod initialize;
mod join;
mod prerequisites;
mod role;

use crate::build::{self, Bootstrap, Rendered, Role, SecretValues, objects};
use crate::observation::{FoundValues, Need, Observation};
use api::conditions::reasons;
use api::names;
use controller_support::plan::{block, wait};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use prerequisites::Ready;
use std::fmt;
use std::time::Duration;

/// The delay before something that no watch shows is read again: at first, and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// What to do before everything is observed again.
pub(crate) type Plan = controller_support::Plan<Step>;

/// A write, or a read that costs a request.
#[derive(Clone, PartialEq)]
pub(crate) enum Step {
    /// Read from the API server what no watch shows.
    Read(Need),
    /// Create the lock.
    TakeLock(Box<ConfigMap>),
    /// Make the lock ours, if it still has this version.
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
            Self::Read(need) => write!(f, "read {need:?}"),
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

/// Decides what to do.
pub(crate) fn plan(observation: &Observation) -> Plan {
    create_data_secret(observation).unwrap_or_else(|hold| hold)
}

/// Creates the bootstrap Secret. `Err`: what has to happen first.
fn create_data_secret(observation: &Observation) -> Result<Plan, Plan> {
    let ready = prerequisites::prerequisites(observation)?;
    let role = role::role(observation, &ready)?;
    let secrets = secret_values(observation)?;
    // This comes before the lock is taken: a config that cannot be rendered must not keep others from initializing.
    let data = render(observation, &ready, &role, secrets)?;
    let init = matches!(role, Role::Init { .. });
    if init {
        initialize::initialize(observation, &ready)?;
    } else {
        join::join(observation)?;
    }
    let secret = Box::new(objects::data_secret(&observation.config, ready.cluster, ready.machine, data));
    Ok(Plan::Do(Step::CreateDataSecret { secret, init }))
}

fn secret_values(observation: &Observation) -> Result<&SecretValues, Plan> {
    let missing = match &observation.secret_values {
        None => return Err(Plan::Do(Step::Read(Need::SecretValues))),
        Some(FoundValues::All(values)) => return Ok(values),
        Some(FoundValues::Missing(missing)) => missing,
    };
    let what = match &missing.key {
        Some(key) => format!("Secret {} has no key {key}", missing.secret),
        None => format!("Secret {} does not exist", missing.secret),
    };
    Err(wait_unwatched(observation, reasons::WAITING_FOR_FILE_SECRET, format!("{}: {what}", missing.field)))
}

fn render(observation: &Observation, ready: &Ready<'_>, role: &Role, secrets: &SecretValues) -> Result<Rendered, Plan> {
    let bootstrap = Bootstrap {
        member: &ready.machine.name,
        role,
        authority: ready.authority,
        spec: &observation.config.spec,
        max_learners: observation.config.annotations().get(names::MAX_LEARNERS_ANNOTATION).map(String::as_str),
        secrets,
    };
    build::render(&bootstrap).map_err(|invalid| block(reasons::INVALID_SPEC, invalid.to_string()))
}

fn wait_unwatched(observation: &Observation, reason: &'static str, message: String) -> Plan {
    wait(reason, message).again(look_again(observation))
}

fn block_unwatched(observation: &Observation, reason: &'static str, message: String) -> Plan {
    block(reason, message).again(look_again(observation))
}

/// The back-off while the data is missing. It follows the age of the config, which is usually the time waited so far.
/// So it survives a restart, and a moment in which nothing is known.
fn look_again(observation: &Observation) -> Duration {
    (observation.age() / 4).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1)
}

#[cfg(test)]
mod tests;
