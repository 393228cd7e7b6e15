//! Reads that cost a request, each made when the plan asks for it. They fail if the API server does not answer.

use super::{is_from_before, owner_of, read_init};
use crate::build::objects::{LockInformation, etcd_cluster_of};
use crate::build::{SecretValues, references};
use crate::context::{Context, LockRecord, Reads};
use crate::observation::{DataSecret, FoundValues, Guard, Init, Lock, MissingValue, Need, Observation};
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::external::{MachineView, secret_bytes};
use controller_support::{Cached, Result, ResultExt, apply};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;

/// Reads what the plan needs into `reads`.
pub(crate) async fn read(context: &Context, observation: &Observation, need: Need, reads: &mut Reads) -> Result<()> {
    match need {
        Need::DataSecret => reads.data_secret = Some(data_secret(context, &observation.config).await?),
        Need::SecretValues => reads.values = Some(secret_values(context, &observation.config).await?),
        Need::LockHolder => {
            let Lock::Held { holder, .. } = &observation.lock else { return Ok(()) };
            let namespace = observation.config.namespace().unwrap_or_default();
            reads.holder_exists = Some(holder_exists(context, holder, &namespace).await?);
        }
        Need::Guard => {
            let Some(machine) = &observation.machine else { return Ok(()) };
            let cluster = observation.cluster_name().unwrap_or_default();
            // If there is none, the watch may show one by now, and that counts.
            if let Some(init) = init_secret(context, machine, cluster).await? {
                reads.init = Some(Some(init));
            }
            reads.guard = Some(guard(context, machine, cluster, &observation.config).await?);
        }
        Need::InitSecret => {
            let Some(machine) = &observation.machine else { return Ok(()) };
            let cluster = observation.cluster_name().unwrap_or_default();
            reads.init = Some(init_secret(context, machine, cluster).await?);
        }
    }
    Ok(())
}

/// The Secret with the config's name.
pub(crate) async fn data_secret(context: &Context, config: &EtcdadmConfig) -> Result<DataSecret> {
    let namespace = config.namespace().unwrap_or_default();
    let secret = get(context, &context.secrets, &namespace, &config.name_any()).await?;
    Ok(secret.map_or(DataSecret::Absent, |secret| owner_of(config, &secret)))
}

/// The init lock.
pub(crate) async fn init_lock(context: &Context, namespace: &str, name: &str) -> Result<Option<LockRecord>> {
    let lock = get(context, &context.config_maps, namespace, name).await?;
    Ok(lock.map(|lock| LockRecord::read(&lock)))
}

/// The init Secret of the Machine's etcd.
async fn init_secret(context: &Context, machine: &MachineView, cluster: &str) -> Result<Option<Init>> {
    let secret = get(context, &context.secrets, &machine.namespace, &names::init_secret(cluster)).await?;
    Ok(secret.filter(|secret| !is_from_before(secret, machine)).map(|secret| read_init(&secret)))
}

async fn get(context: &Context, kind: &Cached, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
    let api = apply::dynamic(&context.client, kind.resource(), namespace);
    api.get_opt(name).await.doing(|| format!("reading {} {namespace}/{name}", kind.resource().kind))
}

/// Values of the Secrets that the spec refers to, each Secret read once.
async fn secret_values(context: &Context, config: &EtcdadmConfig) -> Result<FoundValues> {
    let namespace = config.namespace().unwrap_or_default();
    let mut read: BTreeMap<&str, Option<DynamicObject>> = BTreeMap::new();
    let mut values = SecretValues::default();
    for (field, source) in references(&config.spec) {
        if !read.contains_key(source.name.as_str()) {
            read.insert(&source.name, get(context, &context.secrets, &namespace, &source.name).await?);
        }
        let secret = read.get(source.name.as_str()).and_then(Option::as_ref);
        match secret.map(|secret| secret_bytes(secret, &source.key)) {
            Some(Some(value)) => values.insert(source, value),
            found => {
                let key = found.is_some().then(|| source.key.clone());
                return Ok(FoundValues::Missing(MissingValue { field, secret: source.name.clone(), key }));
            }
        }
    }
    Ok(FoundValues::All(values))
}

async fn holder_exists(context: &Context, holder: &LockInformation, namespace: &str) -> Result<bool> {
    // If the version is no longer served, a get would answer as if the Machine were gone.
    let machine =
        apply::get_live(&context.client, context.machines.resource(), namespace, &holder.machine_name).await?;
    Ok(machine.is_some_and(|machine| holder.is(&machine.name_any(), &machine.uid().unwrap_or_default())))
}

/// Whether this Machine must not initialize etcd. The EtcdCluster records that etcd has been initialized. Before it can
/// know that, and without an EtcdCluster, the bootstrap data of another Machine shows that this other Machine is about
/// to initialize etcd, or has done so.
async fn guard(context: &Context, machine: &MachineView, cluster: &str, config: &EtcdadmConfig) -> Result<Guard> {
    let etcd_cluster = etcd_cluster_of(machine);
    if let Some((name, uid)) = etcd_cluster {
        let api: Api<EtcdCluster> = Api::namespaced(context.client.clone(), &machine.namespace);
        let etcd = api.get_opt(name).await.doing(|| format!("reading EtcdCluster {name}"))?;
        match etcd.filter(|etcd| etcd.metadata.uid.as_deref() == Some(uid)) {
            None => return Ok(Guard::OwnerGone),
            Some(etcd) if etcd.metadata.deletion_timestamp.is_some() => return Ok(Guard::OwnerGone),
            // The controller of EtcdClusters also considers the init Secret. It has been read before.
            Some(etcd) if etcd.has_begun() => return Ok(Guard::Initialized),
            Some(_) => {}
        }
    }
    let selector = match etcd_cluster {
        Some((name, _)) => format!("{}={name}", names::ETCD_CLUSTER_LABEL),
        None => format!("{}={cluster},{}", names::CLUSTER_NAME_LABEL, names::ETCD_CLUSTER_LABEL),
    };
    let begun = other_data_secret(context, machine, &selector, config).await?;
    Ok(begun.map_or(Guard::NotInitialized, Guard::Begun))
}

/// Name of another Machine with bootstrap data, among the Secrets that `selector` finds. The data is deleted with its
/// config, and so with the Machine.
async fn other_data_secret(
    context: &Context,
    machine: &MachineView,
    selector: &str,
    config: &EtcdadmConfig,
) -> Result<Option<String>> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &machine.namespace);
    let labelled = ListParams::default().labels(selector);
    let list = secrets.list_metadata(&labelled).await.doing(|| format!("listing Secrets with labels {selector}"))?;
    let is_of_another = |secret: &&PartialObjectMeta<Secret>| {
        let owners = secret.owner_references().iter();
        let configs = owners.filter(|owner| owner.kind == EtcdadmConfig::kind(&()) && owner.controller == Some(true));
        configs.map(|owner| &owner.uid).any(|uid| Some(uid) != config.metadata.uid.as_ref())
    };
    Ok(list.items.iter().find(is_of_another).map(ResourceExt::name_any))
}
