//! All reads about a LocalMachine, and the clock.

use crate::{
    context::Context,
    crd::{FINALIZER, LocalMachine},
    observation::{BootstrapData, Local, Observation, UserData},
};
use api::names;
use controller_support::{
    Error, Result, ResultExt,
    external::{ClusterView, MachineView},
};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::{Api, ResourceExt};

/// Reads all inputs. Makes one request, for the bootstrap data, and none if the machine exists.
///
/// # Errors
/// If the API server or the state directory cannot be read.
pub(crate) async fn observe(context: &Context, object: &LocalMachine) -> Result<Observation> {
    context.machines.ensure_ready().await?;
    context.clusters.ensure_ready().await?;
    let namespace = object.namespace().unwrap_or_default();
    let owner = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Machine" && owner.api_version.starts_with(&format!("{}/", names::CLUSTER_GROUP)))
        .and_then(|owner| context.machines.get(&namespace, &owner.name))
        .map(|machine| MachineView::read(&machine));
    let cluster_name = object.labels().get(names::CLUSTER_NAME_LABEL).cloned();
    let cluster_name = cluster_name.or_else(|| owner.as_ref().map(|owner| owner.cluster.clone())).unwrap_or_default();
    let cluster = context.clusters.get(&namespace, &cluster_name).map(|cluster| ClusterView::read(&cluster));
    let local = local(context, object)?;
    let bootstrap_data = match (&local, &owner) {
        (None, Some(owner)) => bootstrap_data(context, owner).await?,
        _ => BootstrapData::NotNamed,
    };
    Ok(Observation {
        now: now(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        // If clusterctl has moved the object away, another management cluster owns it and its machine.
        paused: [names::PAUSED_ANNOTATION, names::DELETE_FOR_MOVE_ANNOTATION]
            .iter()
            .any(|name| object.annotations().contains_key(*name))
            || cluster.as_ref().is_some_and(|cluster| cluster.is_paused()),
        has_finalizer: object.finalizers().iter().any(|finalizer| finalizer == FINALIZER),
        has_provider_id: object.spec.provider_id.is_some(),
        owner,
        cluster_name,
        cluster,
        bootstrap_data,
        local,
    })
}

async fn bootstrap_data(context: &Context, owner: &MachineView) -> Result<BootstrapData> {
    let Some(name) = &owner.data_secret else { return Ok(BootstrapData::NotNamed) };
    let secrets: Api<Secret> = Api::namespaced(context.shared.client.clone(), &owner.namespace);
    let secret = secrets.get_opt(name).await.doing(|| format!("reading Secret {name}"))?;
    let value = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove("value"));
    Ok(match value {
        Some(value) => BootstrapData::Ready(UserData(value.0)),
        None => BootstrapData::Missing(name.clone()),
    })
}

/// The machine itself.
///
/// # Errors
/// If its state cannot be read.
pub(crate) fn local(context: &Context, object: &LocalMachine) -> Result<Option<Local>> {
    let found = context.hardware.look(&object.namespace().unwrap_or_default(), &object.name_any());
    found.map_err(|error| Error::Infrastructure(error.to_string()))
}

/// Reads again what our step may have changed.
///
/// # Errors
/// If the machine's state cannot be read.
pub(crate) fn refresh(context: &Context, object: &LocalMachine, observation: &mut Observation) -> Result<()> {
    observation.has_finalizer = object.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    observation.has_provider_id = object.spec.provider_id.is_some();
    observation.local = local(context, object)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the one place where the clock is read")]
pub(crate) fn now() -> Time {
    Time(Timestamp::now())
}
