//! What the infrastructure of a Cluster reports before Cluster API has copied it into the Cluster. Cluster API takes up
//! to two seconds for that, and Machines can be begun in that time.

use crate::context::Context;
use crate::observation::{ClusterLink, Observation};
use controller_support::external::InfrastructureClusterView;
use controller_support::kinds::CLUSTER_API_CONTRACTS;

/// The API group in which the manager may read every kind. For infrastructure of another group, the status of the
/// Cluster is waited for.
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Fills in the failure domains, if the infrastructure is provisioned and the Cluster does not say so yet.
pub(super) async fn read(context: &Context, observation: &mut Observation, namespace: &str) {
    let ClusterLink::One(cluster) = &observation.cluster else { return };
    let reference = cluster.infrastructure.as_ref().filter(|reference| reference.group == GROUP);
    let Some(reference) = reference.filter(|_| !cluster.infrastructure_ready) else { return };
    let kind = match context.shared.kinds.find(&reference.group, &reference.kind, CLUSTER_API_CONTRACTS).await {
        Ok(kind) => kind,
        // Nothing is lost: the Cluster will report the failure domains.
        Err(error) => return tracing::debug!(%error, "the infrastructure of the Cluster cannot be read"),
    };
    let infrastructures = context.watch_infrastructure(&kind);
    if infrastructures.ensure_ready().await.is_err() {
        return;
    }
    let found = infrastructures.get(namespace, &reference.name).map(|found| InfrastructureClusterView::read(&found));
    observation.reported_domains = found.filter(|view| view.provisioned).map(|view| view.failure_domains);
}
