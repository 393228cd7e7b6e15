//! All reads of a reconcile, and the clock. Objects come from shared watches, and what is known about the members comes
//! from the prober. Before a dangerous step, the EtcdCluster, the Cluster, the Machines and the members are read live;
//! Secrets, configs and the template still come from watches.

mod begun;
mod certificates;
mod docker;
mod infrastructure;
mod link;
mod members;

pub(crate) use begun::{Whose, whose};
pub(crate) use certificates::{ca_of, expiries, other_owner};

use crate::context::Context;
use crate::observation::{ClusterLink, Observation, Template};
use api::etcdadm_config::EtcdadmConfig;
use api::{EtcdCluster, admission, names};
use controller_support::external::{ClusterView, MachineView, secret_text};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::{BY_CONTROLLER_UID, Cached, Error, Index, KindError, Result, ResultExt, apply};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Resource, ResourceExt};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything that the plan may need.
pub(crate) async fn observe(context: &Context, etcd: Arc<EtcdCluster>) -> Result<Observation> {
    for cached in [&context.clusters, &context.machines, &context.secrets, &context.configs] {
        cached.ensure_ready().await?;
    }
    let (namespace, uid) = (etcd.namespace().unwrap_or_default(), etcd.uid().unwrap_or_default());
    let machines = context.machines.by_index(&BY_CONTROLLER_UID, &namespace, &uid);
    read(context, etcd, &machines, false).await
}

/// Reads it again: the EtcdCluster, its Cluster and its Machines from the API server, and the members by asking each of
/// them now.
pub(crate) async fn observe_live(context: &Context, before: &Observation) -> Result<Observation> {
    from_api_server(context, before, true).await
}

/// The same right before a removal, once [`observe_live`] has asked all members. The members are asked last, and only
/// those that have answered, so that nothing is waited for between their answers and the removal.
pub(crate) async fn observe_again(context: &Context, before: &Observation) -> Result<Observation> {
    let mut again = from_api_server(context, before, false).await?;
    again.take(context.prober.ask_again(&again.etcd.uid().unwrap_or_default()).await);
    again.now = now();
    Ok(again)
}

async fn from_api_server(context: &Context, before: &Observation, asks_members: bool) -> Result<Observation> {
    let (namespace, name) = (before.etcd.namespace().unwrap_or_default(), before.etcd.name_any());
    let etcds: Api<EtcdCluster> = Api::namespaced(context.shared.client.clone(), &namespace);
    let etcd = etcds.get(&name).await.doing(|| format!("reading EtcdCluster {name}"))?;
    let uid = before.etcd.uid().unwrap_or_default();
    if etcd.uid().as_ref() != Some(&uid) {
        return Err(Error::NotReady(format!("EtcdCluster {name} is another one by now")));
    }
    let api = apply::dynamic(&context.shared.client, context.machines.resource(), &namespace);
    let labels = match &before.cluster {
        // Cluster API restores this label. A person may have removed ours.
        ClusterLink::One(cluster) => format!("{}={}", names::CLUSTER_NAME_LABEL, cluster.name),
        _ => format!("{}={name}", names::ETCD_CLUSTER_LABEL),
    };
    let machines = api.list(&ListParams::default().labels(&labels)).await.doing(|| "listing Machines".to_owned())?;
    let ours = machines.items.into_iter().filter(|machine| is_controlled_by(machine, &uid));
    let mut live = read(context, Arc::new(etcd), &ours.map(Arc::new).collect::<Vec<_>>(), asks_members).await?;
    if let ClusterLink::One(cluster) = &mut live.cluster {
        // The Cluster may have been paused a moment ago. This controller has the permission to list Clusters, and not
        // to get one.
        let api = apply::dynamic(&context.shared.client, context.clusters.resource(), &namespace);
        let this_one = ListParams::default().fields(&format!("metadata.name={}", cluster.name));
        let found = api.list(&this_one).await.doing(|| format!("reading Cluster {}", cluster.name))?;
        let found = found.items.first().ok_or_else(|| Error::NotReady(format!("Cluster {} is gone", cluster.name)))?;
        **cluster = ClusterView::read(found);
    }
    Ok(live)
}

async fn read(
    context: &Context,
    etcd: Arc<EtcdCluster>,
    machines: &[Arc<DynamicObject>],
    live: bool,
) -> Result<Observation> {
    let (namespace, uid) = (etcd.namespace().unwrap_or_default(), etcd.uid().unwrap_or_default());
    let cluster = link::cluster_link(&context.clusters, &etcd, &namespace);
    let mut observation = Observation {
        machines: machines.iter().map(|machine| (machine.name_any(), MachineView::read(machine))).collect(),
        not_owned: not_owned(&context.machines, &namespace, &etcd),
        begun: begun::begun(&context.configs, &context.machines, &etcd, &namespace),
        ..Observation::new(now(), etcd, cluster)
    };
    read_configs(&context.configs, &namespace, &mut observation);
    if let ClusterLink::One(cluster) = &observation.cluster {
        let cluster = cluster.name.clone();
        if let Some(secret) = init_secret(&context.secrets, &namespace, &cluster, &uid) {
            observation.init_urls = secret_text(&secret, "clientUrls").filter(|urls| !urls.is_empty());
            observation.init_cluster_id = secret_text(&secret, names::INIT_CLUSTER_ID);
            observation.init_version = secret.resource_version();
            observation.init_uid = secret.uid();
            observation.admitted = secret_text(&secret, names::ADMITTED).map(|text| admission::decode(&text));
        }
        observation.bootstrapped = bootstrapped(&context.secrets, &namespace, &observation);
        // A deletion of the EtcdCluster asks nothing of etcd, so that it does not wait for members that hang.
        if observation.etcd.metadata.deletion_timestamp.is_none() {
            let (certificates, ca) = certificates::read(context, &observation, &cluster).await?;
            observation.certificates = certificates;
            let (secrets, judged_cas) = (&context.secrets, &context.judged_cas);
            observation.metrics_client_expires =
                certificates::metrics_client(secrets, judged_cas, &observation.etcd, &cluster)
                    .filter(|validity| validity.from <= observation.now)
                    .map(|validity| validity.until);
            docker::read(context, &mut observation, &namespace).await;
            infrastructure::read(context, &mut observation, &namespace).await;
            members::read(context, &mut observation, ca, live).await;
        }
    }
    if needs_template(&observation) {
        observation.template = template(context, &observation.etcd, &namespace).await;
    }
    Ok(observation)
}

/// Objects by our label. A person who removes the label says that the object is not ours.
const BY_LABEL: Index = Index::new("etcd cluster label", |object| {
    object.labels().get(names::ETCD_CLUSTER_LABEL).cloned().into_iter().collect()
});

fn not_owned(machines: &Cached, namespace: &str, etcd: &EtcdCluster) -> Vec<String> {
    let uid = etcd.uid().unwrap_or_default();
    let labelled = machines.by_index(&BY_LABEL, namespace, &etcd.name_any());
    let mut others: Vec<String> = labelled
        .iter()
        .filter(|machine| !is_controlled_by(machine.as_ref(), &uid))
        .map(|machine| machine.name_any())
        .collect();
    others.sort();
    others
}

/// Reads the configs that Machines refer to.
fn read_configs(configs: &Cached, namespace: &str, observation: &mut Observation) {
    for machine in observation.machines.values() {
        let reference = machine.bootstrap_config.as_ref().filter(|config| config.kind == EtcdadmConfig::kind(&()));
        let Some(config) = reference.and_then(|reference| configs.get(namespace, &reference.name)) else { continue };
        if let Some(limit) = config.annotations().get(names::MAX_LEARNERS_ANNOTATION) {
            observation.learner_limits.insert(machine.name.clone(), limit.clone());
        }
        let spec = config.data.get("spec").and_then(|spec| api::EtcdadmConfigSpec::deserialize(spec).ok());
        observation.configs.extend(spec.map(|spec| (machine.name.clone(), spec)));
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Whether the controller owner of an object has this UID.
pub(crate) fn is_controlled_by(object: &impl Resource, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

fn init_secret(secrets: &Cached, namespace: &str, cluster: &str, uid: &str) -> Option<Arc<DynamicObject>> {
    secrets.get(namespace, &names::init_secret(cluster)).filter(|secret| is_controlled_by(secret.as_ref(), uid))
}

/// When each Machine got its bootstrap data. Bootstrap data that is older than the Machine belongs to an earlier
/// Machine of the same name, and does not count.
fn bootstrapped(secrets: &Cached, namespace: &str, observation: &Observation) -> BTreeMap<String, Timestamp> {
    let of = |machine: &MachineView| {
        let made = secrets.get(namespace, &machine.name)?.creation_timestamp()?.0;
        machine.created.as_ref().is_none_or(|created| created.0 <= made).then(|| (machine.name.clone(), made))
    };
    observation.machines.values().filter_map(of).collect()
}

/// Whether the template is needed. It comes from a watch, so the look-up costs nothing. It is made even if no Machine
/// is missing, because the template may lack its owner. No template is needed if the EtcdCluster is being deleted and
/// its Cluster is not.
fn needs_template(observation: &Observation) -> bool {
    let going = observation.etcd.metadata.deletion_timestamp.is_some();
    matches!(&observation.cluster, ClusterLink::One(cluster) if cluster.deleting || !going)
}

async fn template(context: &Context, etcd: &EtcdCluster, namespace: &str) -> Template {
    let wanted = &etcd.spec.infrastructure_template;
    let (group, kind) = (wanted.group(), wanted.kind.as_str());
    let found = async {
        let template = context.shared.kinds.find(group, kind, CLUSTER_API_CONTRACTS).await?;
        let clones = kind.strip_suffix("Template").unwrap_or(kind);
        let clones = context.shared.kinds.find(group, clones, CLUSTER_API_CONTRACTS).await?;
        Ok::<_, KindError>((template, clones))
    };
    let (resource, clones) = match found.await {
        Ok(found) => found,
        Err(error) if error.is_user_error() => {
            return Template::NotFound(format!("spec.infrastructureTemplate: {error}"));
        }
        Err(error) => return Template::Unknown(error.to_string()),
    };
    let templates = context.watch_template(&resource);
    if let Err(error) = templates.ensure_ready().await {
        return Template::Unknown(error.to_string());
    }
    match templates.get(namespace, &wanted.name) {
        Some(template) => Template::Found { template, clones },
        None => Template::NotFound(format!(
            "spec.infrastructureTemplate: {kind} {} does not exist in namespace {namespace}",
            wanted.name
        )),
    }
}
