//! The Cluster that the EtcdCluster is for. Without a Cluster, or while the Cluster is being deleted, nothing is added.

use super::{Plan, View, block, identity, operation, retire, wait};
use crate::observation::ClusterLink;
use api::conditions::reasons;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let observation = view.observation;
    let problem = observation.cluster.problem().unwrap_or_default();
    let cluster = match &observation.cluster {
        ClusterLink::One(cluster) => cluster,
        ClusterLink::None { .. } => return Some(wait(reasons::WAITING_FOR_CLUSTER, problem)),
        ClusterLink::UsesAnother { .. } => return Some(block(reasons::CLUSTER_USES_ANOTHER_ETCD, problem)),
        ClusterLink::Several(_) => return Some(block(reasons::CLAIMED_BY_SEVERAL_CLUSTERS, problem)),
    };
    if cluster.deleting {
        // The workers of the Cluster may need etcd until the EtcdCluster itself is deleted, and so may the hooks that
        // Cluster API calls before the Cluster goes. So a deleted Machine waits until its removal is safe, as usual.
        let message = format!("Cluster {} is being deleted: no member is added", cluster.name);
        let leaving = [identity::plan, operation::plan, retire::plan].iter().find_map(|rule| rule(view));
        return Some(leaving.unwrap_or_else(|| wait(reasons::DELETING, message)));
    }
    let namespace = observation.etcd.spec.infrastructure_template.namespace.as_ref()?;
    (Some(namespace) != observation.etcd.metadata.namespace.as_ref()).then(|| {
        let message = format!(
            "spec.infrastructureTemplate.namespace is {namespace}; the template must be in the EtcdCluster's own namespace"
        );
        block(reasons::TEMPLATE_INVALID, message)
    })
}
