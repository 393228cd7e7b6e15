//! What every bootstrap needs, as far as the watches show it.

use super::{Plan, Step, block, block_unwatched, wait};
use crate::build::CertificateAuthority;
use crate::observation::{DataSecret, Need, Observation};
use api::conditions::reasons;
use api::names;
use controller_support::external::{ClusterView, MachineView};
use kube::ResourceExt;

/// What every bootstrap is made from.
pub(super) struct Ready<'a> {
    pub machine: &'a MachineView,
    pub cluster: &'a ClusterView,
    pub authority: &'a CertificateAuthority,
}

/// `Err`: the data exists already, or something is missing.
pub(super) fn prerequisites(observation: &Observation) -> Result<Ready<'_>, Plan> {
    data_secret(observation)?;
    let machine = machine(observation)?;
    let cluster = cluster(observation)?;
    // The data of an etcd member does not depend on the Cluster's infrastructure, so it does not wait for that. The
    // Machine's own infrastructure does.
    let secret = names::ca_secret(&cluster.name);
    match &observation.authority {
        None => {
            let message = format!(
                "Secret {secret} with etcd's CA (tls.crt, tls.key) and the label {} does not exist yet. The controller of \
                 the EtcdCluster makes it; without an EtcdCluster, create it",
                names::ETCD_CLUSTER_LABEL
            );
            Err(wait(reasons::WAITING_FOR_CERTIFICATES, message))
        }
        Some(Err(invalid)) => Err(block(reasons::SECRET_INVALID, format!("Secret {secret}: {invalid}"))),
        Some(Ok(authority)) => Ok(Ready { machine, cluster, authority }),
    }
}

fn data_secret(observation: &Observation) -> Result<(), Plan> {
    match &observation.data_secret {
        DataSecret::Ours => return Err(Plan::Steady),
        DataSecret::Promised => return Err(Plan::Do(Step::Read(Need::DataSecret))),
        DataSecret::Foreign(_) | DataSecret::Absent => {}
    }
    if let Some(paused) = observation.paused() {
        return Err(wait(reasons::PAUSED, paused));
    }
    if let DataSecret::Foreign(owner) = &observation.data_secret {
        let message = format!(
            "the bootstrap data needs the name of Secret {}, which belongs to {owner}; delete that Secret, or recreate \
             the Machine under another name",
            observation.config.name_any()
        );
        return Err(block_unwatched(observation, reasons::NAME_TAKEN, message));
    }
    let Some(answer) = &observation.refused else { return Ok(()) };
    let message = format!("the API server refused the bootstrap Secret: {answer}");
    Err(block_unwatched(observation, reasons::REFUSED, message))
}

fn machine(observation: &Observation) -> Result<&MachineView, Plan> {
    match &observation.machine {
        None => Err(wait(reasons::WAITING_FOR_MACHINE, "no Machine refers to this EtcdadmConfig yet")),
        Some(machine) if machine.deleting => {
            let message = format!("Machine {} is being deleted: no bootstrap data is made for it", machine.name);
            Err(wait(reasons::DELETING, message))
        }
        Some(machine) => Ok(machine),
    }
}

fn cluster(observation: &Observation) -> Result<&ClusterView, Plan> {
    match &observation.cluster {
        None => {
            let name = observation.cluster_name().unwrap_or_default();
            let namespace = observation.config.namespace().unwrap_or_default();
            let message = format!("Cluster {name} does not exist yet in namespace {namespace}");
            Err(wait(reasons::WAITING_FOR_CLUSTER, message))
        }
        Some(cluster) if cluster.deleting => {
            let message = format!("Cluster {} is being deleted: no bootstrap data is made for its etcd", cluster.name);
            Err(wait(reasons::DELETING, message))
        }
        Some(cluster) => Ok(cluster),
    }
}
