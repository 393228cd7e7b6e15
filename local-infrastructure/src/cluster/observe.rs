//! All reads about a LocalCluster, and the clock.

use super::{context::Context, observation::Observation};
use crate::{crd::LocalCluster, mappers::BY_LOCAL_CLUSTER, observe::now};
use api::names;
use controller_support::{Cached, Result, external::ClusterView};
use kube::ResourceExt;

/// Reads all inputs, without a request to the API server.
///
/// # Errors
/// If the Clusters cannot be listed.
pub(super) async fn observe(context: &Context, object: LocalCluster) -> Result<Observation> {
    context.clusters.ensure_ready().await?;
    Ok(Observation { now: now(), cluster: cluster_of(&context.clusters, &object), object })
}

/// The Cluster that owns a LocalCluster; before Cluster API has set the owner, the Cluster that refers to it. Not
/// waiting for the owner saves a second, because Cluster API reconciles a Cluster once a second.
fn cluster_of(clusters: &Cached, object: &LocalCluster) -> Option<ClusterView> {
    let namespace = object.namespace().unwrap_or_default();
    let owner = object
        .owner_references()
        .iter()
        .find(|owner| owner.kind == "Cluster" && owner.api_version.starts_with(&format!("{}/", names::CLUSTER_GROUP)));
    let found = match owner {
        Some(owner) => clusters.get(&namespace, &owner.name),
        None => clusters.by_index(&BY_LOCAL_CLUSTER, &namespace, &object.name_any()).into_iter().next(),
    };
    found.map(|cluster| ClusterView::read(&cluster))
}
