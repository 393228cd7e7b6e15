//! All reads, and the clock. [`observe`] reads the watches, which costs no request. [`live`] makes the requests that
//! the plan asks for.

mod live;

pub(crate) use live::{data_secret, init_lock, read};

use crate::build::objects::{LockInformation, etcd_cluster_of};
use crate::build::{CertificateAuthority, SecretValues, references};
use crate::context::{Context, LockRecord, Reads};
use crate::observation::{DataSecret, FoundValues, Init, Lock, Observation};
use api::{EtcdCluster, EtcdadmConfig, admission, names};
use controller_support::external::{ClusterView, MachineView, api_group, secret_bytes, secret_text};
use controller_support::{Index, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use std::sync::Arc;

/// Machines by the name of their EtcdadmConfig.
const BY_CONFIG: Index = Index::new("EtcdadmConfig", |machine| {
    let config = MachineView::read(machine).bootstrap_config;
    let ours = config.filter(|c| c.kind == EtcdadmConfig::kind(&()) && c.group == names::BOOTSTRAP_GROUP);
    ours.map(|config| config.name).into_iter().collect()
});

/// Everything about a config that the watches show or this reconcile already knows.
///
/// # Errors
/// If the first lists have not arrived.
pub(crate) async fn observe(context: &Context, config: Arc<EtcdadmConfig>, reads: &Reads) -> Result<Observation> {
    for watch in [&context.machines, &context.clusters, &context.secrets, &context.config_maps] {
        watch.ensure_ready().await?;
    }
    let no_references = references(&config.spec).is_empty();
    let mut observation = Observation {
        now: now(),
        machine: machine(context, &config),
        cluster: None,
        data_secret: watched_data_secret(context, &config, reads),
        authority: None,
        init: None,
        init_is_live: reads.init.is_some(),
        lock: Lock::Free,
        guard: reads.guard.clone(),
        secret_values: reads
            .values
            .clone()
            .or_else(|| no_references.then(|| FoundValues::All(SecretValues::default()))),
        refused: reads.refused.clone(),
        config,
    };
    let namespace = observation.config.namespace().unwrap_or_default();
    let Some(cluster) = observation.cluster_name().map(str::to_owned) else { return Ok(observation) };
    observation.cluster = context.clusters.get(&namespace, &cluster).map(|object| ClusterView::read(&object));
    let secret = |name: &str| {
        let secret = context.secrets.get(&namespace, name);
        secret.filter(|secret| observation.machine.as_ref().is_none_or(|machine| !is_from_before(secret, machine)))
    };
    let authority = secret(&names::ca_secret(&cluster)).map(|secret| {
        let value = |key| secret_bytes(&secret, key).unwrap_or_default();
        CertificateAuthority::from_pem(&value("tls.crt"), &value("tls.key"))
    });
    let watched_init = || secret(&names::init_secret(&cluster)).map(|secret| read_init(&secret));
    let init = reads.init.clone().unwrap_or_else(watched_init);
    observation.authority = authority;
    observation.init = init;
    if let Some(machine) = &observation.machine {
        observation.lock = lock(context, machine, &cluster, reads);
    }
    Ok(observation)
}

/// The Machine that the config is for: its owner, or the Machine that refers to the config if Cluster API has not set
/// the owner yet. Not waiting for the owner saves a second, because Cluster API reconciles a Machine once a second.
fn machine(context: &Context, config: &EtcdadmConfig) -> Option<MachineView> {
    let namespace = config.namespace()?;
    let is_machine =
        |owner: &&OwnerReference| owner.kind == "Machine" && api_group(&owner.api_version) == names::CLUSTER_GROUP;
    let owner = config.owner_references().iter().find(is_machine);
    let Some(owner) = owner else {
        let referring = context.machines.by_index(&BY_CONFIG, &namespace, &config.name_any());
        return referring.first().map(|machine| MachineView::read(machine));
    };
    let machine = context.machines.get(&namespace, &owner.name)?;
    (machine.uid().as_ref() == Some(&owner.uid)).then(|| MachineView::read(&machine))
}

fn watched_data_secret(context: &Context, config: &EtcdadmConfig, reads: &Reads) -> DataSecret {
    let (namespace, name) = (config.namespace().unwrap_or_default(), config.name_any());
    let promised = config.status.as_ref().is_some_and(|status| status.data_secret_name.is_some());
    match (&reads.data_secret, context.secrets.get(&namespace, &name)) {
        (Some(found), _) => found.clone(),
        (None, Some(secret)) => owner_of(config, &secret),
        (None, None) if promised => DataSecret::Promised,
        (None, None) => DataSecret::Absent,
    }
}

/// Whether this config controls a Secret, and if not, what does.
fn owner_of(config: &EtcdadmConfig, secret: &DynamicObject) -> DataSecret {
    match secret.owner_references().iter().find(|owner| owner.controller == Some(true)) {
        Some(owner) if Some(&owner.uid) == config.metadata.uid.as_ref() => DataSecret::Ours,
        Some(owner) => DataSecret::Foreign(format!("{} {}", owner.kind, owner.name)),
        None => DataSecret::Foreign("no controller".to_owned()),
    }
}

fn lock(context: &Context, machine: &MachineView, cluster: &str, reads: &Reads) -> Lock {
    let watched = || context.config_maps.get(&machine.namespace, &names::init_lock(cluster));
    let Some(lock) = reads.lock().cloned().or_else(|| watched().map(|lock| LockRecord::read(&lock))) else {
        return Lock::Free;
    };
    if let Some(other) = lock.cluster.filter(|named| named != cluster) {
        return Lock::Foreign(other);
    }
    let Ok(holder) = serde_json::from_str::<LockInformation>(&lock.information) else {
        return Lock::Unreadable;
    };
    if holder.is(&machine.name, &machine.uid) {
        return Lock::Ours;
    }
    let found = context.machines.get(&machine.namespace, &holder.machine_name);
    let found = found.filter(|found| holder.is(&found.name_any(), &found.uid().unwrap_or_default()));
    let exists = found.is_some().then_some(true).or(reads.holder_exists);
    let created = found.and_then(|found| Some(found.creation_timestamp()?.0));
    Lock::Held { holder, exists, created, resource_version: lock.resource_version }
}

/// Whether a Secret belongs to an earlier EtcdCluster for the same Cluster, so that the garbage collector is about to
/// delete it.
fn is_from_before(secret: &DynamicObject, machine: &MachineView) -> bool {
    let present = etcd_cluster_of(machine).map(|(_, uid)| uid);
    let is_etcd = |owner: &&OwnerReference| owner.kind == EtcdCluster::kind(&());
    let owner = secret.owner_references().iter().find(is_etcd);
    owner.is_some_and(|owner| present.is_some_and(|present| owner.uid != present))
}

fn read_init(init: &DynamicObject) -> Init {
    Init {
        client_urls: secret_text(init, "clientUrls").unwrap_or_default(),
        cluster_id: secret_text(init, names::INIT_CLUSTER_ID),
        admitted: secret_text(init, names::ADMITTED).map(|text| admission::decode(&text)),
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the clock is read")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
