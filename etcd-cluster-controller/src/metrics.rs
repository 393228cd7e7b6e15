//! Metrics of etcd clusters.

use api::EtcdCluster;
use api::etcd_cluster::EtcdClusterStatus;
use controller_support::Metrics;
use kube::ResourceExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    namespace: String,
    name: String,
}

/// Gauges of every EtcdCluster.
#[derive(Default)]
pub(crate) struct EtcdMetrics {
    ready: Family<Labels, Gauge>,
    wanted: Family<Labels, Gauge>,
    members: Family<Labels, Gauge>,
    healthy_voters: Family<Labels, Gauge>,
}

impl EtcdMetrics {
    /// Registers the gauges with the process's metrics.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let ours = Self::default();
        metrics.register(|registry| {
            registry.register("etcd_cluster_ready", "1 if all wanted members are healthy voters", ours.ready.clone());
            registry.register("etcd_cluster_wanted_members", "Wanted members", ours.wanted.clone());
            registry.register("etcd_cluster_members", "Members in etcd's member list", ours.members.clone());
            registry.register("etcd_cluster_healthy_voters", "Healthy voters", ours.healthy_voters.clone());
        });
        ours
    }

    /// Shows a status.
    pub(crate) fn show(&self, etcd: &EtcdCluster, status: &EtcdClusterStatus) {
        let labels = labels(etcd);
        self.ready.get_or_create(&labels).set(i64::from(status.ready));
        self.wanted.get_or_create(&labels).set(i64::from(etcd.spec.replicas));
        self.members.get_or_create(&labels).set(i64::try_from(status.members.len()).unwrap_or(i64::MAX));
        self.healthy_voters.get_or_create(&labels).set(i64::from(status.ready_replicas));
    }

    /// Forgets a cluster that is gone.
    pub(crate) fn forget(&self, etcd: &EtcdCluster) {
        let labels = labels(etcd);
        for family in [&self.ready, &self.wanted, &self.members, &self.healthy_voters] {
            family.remove(&labels);
        }
    }
}

fn labels(etcd: &EtcdCluster) -> Labels {
    Labels { namespace: etcd.namespace().unwrap_or_default(), name: etcd.name_any() }
}
