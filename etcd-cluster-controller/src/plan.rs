//! What to do next. Total and pure: everything it depends on is in the [`Observation`].
//!
//! ```text
//! paused? ── yes ─> nothing, as everywhere in Cluster API
//!    │ no
//! deleting? ── yes ─> Machines go, then the finalizer
//!    │ no
//! Cluster known ─> finalizer ─> certificates ─> init Secret follows the voters ─> Machines ─> one member at a time
//!                  ... and where nothing is to be done: the owner of the infrastructure template
//! ```

mod deletion;
mod docker;
mod due;
mod growth;
mod init;
mod template;
#[cfg(test)]
mod tests;

use crate::observation::{Certificates, ClusterLink, Observation};
use api::conditions::reasons;
use api::names;
use controller_support::loose::ClusterView;
use kube::ResourceExt;

pub use due::due;
pub(crate) use template::owns_template;

/// The answer to "what next?".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Everything is as wanted.
    Steady,
    /// Something has to happen first, and it needs nobody's help.
    Wait(Reason),
    /// Somebody has to change something.
    Block(Reason),
    /// One step.
    Do(Step),
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// One of [`api::conditions::reasons`].
    pub reason: &'static str,
    /// What is waited for, and what would help.
    pub message: String,
}

/// One step. At most one changes the membership, and it is the only one of its reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put our finalizer on the EtcdCluster.
    AddFinalizer,
    /// Make whatever of the certificates is missing.
    EnsureCertificates {
        /// Name of the Cluster.
        cluster: String,
    },
    /// Tell joining members where the voters are.
    PublishInit {
        /// Name of the Cluster.
        cluster: String,
        /// Address of the first voter.
        address: String,
        /// Client URLs of the voters, sorted, separated by commas.
        client_urls: String,
        /// Those that are admitted so far, in the form of the init Secret.
        admitted: String,
    },
    /// Make one more Machine. It is held back: it does not boot, and is no member, before it is admitted.
    CreateMachine {
        /// Name of the Cluster.
        cluster: String,
        /// Name of the Machine, its config and its infrastructure.
        name: String,
        /// Names of the Machines that the decision was made on: it is off if there are others by now.
        seen: Vec<String>,
    },
    /// Let a Machine that is held back become a member: the one step that adds to the membership. It is off if anybody
    /// has been admitted in between.
    Admit {
        /// Name of the Cluster.
        cluster: String,
        /// Name of the Machine.
        name: String,
        /// All that are admitted then, in the form of the init Secret.
        admitted: String,
    },
    /// Delete a Machine that is held back and made from an earlier spec: it is made again from the present one.
    DeleteHeldBack {
        /// Name of the Cluster.
        cluster: String,
        /// Name of the Machine.
        name: String,
    },
    /// Let a DockerMachine count as provisioned.
    SetProviderId {
        /// Name of the Machine.
        machine: String,
        /// What `spec.providerID` becomes.
        provider_id: String,
    },
    /// Delete Machines: the EtcdCluster is being deleted.
    DeleteMachines {
        /// Their names.
        names: Vec<String>,
    },
    /// Let the EtcdCluster go.
    RemoveFinalizer,
}

fn wait(reason: &'static str, message: impl Into<String>) -> Plan {
    Plan::Wait(Reason { reason, message: message.into() })
}

fn block(reason: &'static str, message: impl Into<String>) -> Plan {
    Plan::Block(Reason { reason, message: message.into() })
}

/// Decides what to do next.
#[must_use]
pub fn plan(seen: &Observation) -> Plan {
    let etcd = &seen.etcd;
    if let Some(what) = paused(seen) {
        return wait(reasons::PAUSED, format!("{what} is paused"));
    }
    if etcd.metadata.deletion_timestamp.is_some() {
        return deletion::plan(seen);
    }
    let cluster = match &seen.cluster {
        ClusterLink::One(cluster) => cluster,
        ClusterLink::None(message) => return wait(reasons::WAITING_FOR_CLUSTER, message),
        ClusterLink::UsesAnother(message) => return block(reasons::CLUSTER_USES_ANOTHER_ETCD, message),
        ClusterLink::Several(names) => {
            let message = format!("Clusters {} all name this EtcdCluster; only one may", names.join(", "));
            return block(reasons::CLAIMED_BY_SEVERAL_CLUSTERS, message);
        }
    };
    if cluster.deleting {
        return wait(reasons::DELETING, format!("Cluster {} is being deleted: no member is added", cluster.name));
    }
    if let Some(namespace) = &etcd.spec.infrastructure_template.namespace
        && Some(namespace) != etcd.namespace().as_ref()
    {
        return block(
            reasons::TEMPLATE_INVALID,
            format!(
                "spec.infrastructureTemplate.namespace is {namespace}; the template must be in the EtcdCluster's own namespace"
            ),
        );
    }
    if !etcd.finalizers().iter().any(|finalizer| finalizer == names::ETCD_CLUSTER_FINALIZER) {
        return Plan::Do(Step::AddFinalizer);
    }
    if let Some(plan) = certificates(seen, cluster) {
        return plan;
    }
    if let Some(step) = init::publish(seen, cluster) {
        return Plan::Do(step);
    }
    if let Some(step) = docker::set_provider_id(seen) {
        return Plan::Do(step);
    }
    growth::plan(seen, cluster)
}

/// What is paused, if anything is.
fn paused(seen: &Observation) -> Option<String> {
    if seen.etcd.annotations().contains_key(names::PAUSED_ANNOTATION) {
        return Some(format!("EtcdCluster {}", seen.etcd.name_any()));
    }
    match &seen.cluster {
        ClusterLink::One(cluster) if cluster.paused => Some(format!("Cluster {}", cluster.name)),
        _ => None,
    }
}

/// Whether etcd has come up once. A new CA or a second "first" member would then mean a second, empty etcd.
fn has_begun(seen: &Observation) -> bool {
    seen.init_urls.is_some() || seen.etcd.status.as_ref().is_some_and(|status| status.initialized)
}

fn certificates(seen: &Observation, cluster: &ClusterView) -> Option<Plan> {
    let secret = names::ca_secret(&cluster.name);
    // Members trust the CA that they were made with.
    let in_use = has_begun(seen) || !seen.machines.is_empty();
    match &seen.certificates {
        Certificates::Unknown => Some(wait(reasons::WAITING_FOR_CERTIFICATES, "the Secrets cannot be read yet")),
        Certificates::OfAnother(other) => Some(wait(
            reasons::WAITING_FOR_CERTIFICATES,
            format!("Secret {secret} still belongs to EtcdCluster {other} and goes with that; then a new one is made"),
        )),
        Certificates::Invalid(message) => Some(block(reasons::SECRET_INVALID, format!("Secret {secret}: {message}"))),
        Certificates::NoCa if in_use => Some(block(
            reasons::SECRET_INVALID,
            format!(
                "Secret {secret} with the CA of the running members is gone; restore it from a backup (a new CA would shut them out)"
            ),
        )),
        Certificates::Replaced if in_use => Some(block(
            reasons::SECRET_INVALID,
            format!(
                "Secret {secret} holds another CA than the one that the members were made with (it has not signed Secret {}); restore it from a backup",
                names::staged_apiserver_client_secret(&cluster.name)
            ),
        )),
        Certificates::Ca { control_plane_ca: true, staged_client: true } => None,
        Certificates::NoCa | Certificates::Replaced | Certificates::Ca { .. } => {
            Some(Plan::Do(Step::EnsureCertificates { cluster: cluster.name.clone() }))
        }
    }
}
