//! The Cluster that an EtcdCluster is for.

use crate::observation::ClusterLink;
use api::{EtcdCluster, names};
use controller_support::external::ClusterView;
use controller_support::{Cached, Index};
use kube::ResourceExt;

/// Clusters by the EtcdCluster that they name.
const BY_ETCD_CLUSTER: Index = Index::new("etcd cluster", |cluster| {
    let view = ClusterView::read(cluster);
    let named = view.etcd.as_ref().and_then(|etcd| etcd.as_ref().ok()).map(|etcd| etcd.name.clone());
    named.filter(|name| view.names_etcd_cluster(name)).into_iter().collect()
});

pub(super) fn cluster_link(clusters: &Cached, etcd: &EtcdCluster, namespace: &str) -> ClusterLink {
    let name = etcd.name_any();
    let naming = clusters.by_index(&BY_ETCD_CLUSTER, namespace, &name);
    let mut naming: Vec<ClusterView> = naming.iter().map(|cluster| ClusterView::read(cluster)).collect();
    naming.sort_by(|a, b| a.name.cmp(&b.name));
    let labelled = etcd.labels().get(names::CLUSTER_NAME_LABEL);
    if naming.len() > 1 {
        // The Cluster that the EtcdCluster already belongs to keeps it. The Cluster hook reports the conflict on the
        // others.
        return match naming.iter().position(|cluster| Some(&cluster.name) == labelled) {
            Some(index) => ClusterLink::One(Box::new(naming.swap_remove(index))),
            None => ClusterLink::Several(naming),
        };
    }
    match (naming.pop(), labelled) {
        (Some(cluster), Some(label)) if cluster.name != *label => {
            let message = format!(
                "label {} says {label}, but it is Cluster {} that names this EtcdCluster; correct one of them",
                names::CLUSTER_NAME_LABEL,
                cluster.name
            );
            let labelled = clusters.get(namespace, label).map(|labelled| ClusterView::read(&labelled));
            let living = [Some(cluster), labelled].into_iter().flatten().find(|cluster| !cluster.deleting);
            ClusterLink::UsesAnother { message, living: living.map(|cluster| cluster.name) }
        }
        (Some(cluster), _) => ClusterLink::One(Box::new(cluster)),
        (None, Some(label)) => unnamed(clusters, namespace, label, &name),
        (None, None) => ClusterLink::None {
            message: format!(
                "no Cluster in namespace {namespace} has the annotation {}: {name}",
                names::MANAGED_ETCD_ANNOTATION
            ),
            living: None,
        },
    }
}

/// The link if the label names a Cluster, and no Cluster names this EtcdCluster.
fn unnamed(clusters: &Cached, namespace: &str, label: &str, name: &str) -> ClusterLink {
    let Some(cluster) = clusters.get(namespace, label) else {
        let message = format!(
            "Cluster {label}, which the label {} names, does not exist in namespace {namespace}: create it, or correct the label",
            names::CLUSTER_NAME_LABEL
        );
        return ClusterLink::None { message, living: None };
    };
    let cluster = ClusterView::read(&cluster);
    let living = (!cluster.deleting).then(|| cluster.name.clone());
    match cluster.etcd {
        Some(Ok(other)) => {
            let message = format!(
                "Cluster {label} uses {other}; set its annotation {} to {name} to have it use this one",
                names::MANAGED_ETCD_ANNOTATION
            );
            ClusterLink::UsesAnother { message, living }
        }
        // The Cluster is being deleted, and this etcd with it: the hook finds by the label what the Cluster has left
        // behind.
        _ if cluster.deleting => ClusterLink::One(Box::new(cluster)),
        _ => ClusterLink::None {
            message: format!(
                "Cluster {label} does not name this EtcdCluster: give it the annotation {}: {name}",
                names::MANAGED_ETCD_ANNOTATION
            ),
            living,
        },
    }
}
