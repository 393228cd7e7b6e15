//! EtcdClusters that cannot be read. Nothing is done for them, and they cannot have a condition that says so.

use controller_support::{Metrics, Scope};
use kube::ResourceExt;
use kube::api::DynamicObject;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    namespace: String,
    name: String,
}

/// Shows which EtcdClusters in scope cannot be read.
pub(crate) struct Unreadable {
    shown: Family<Labels, Gauge>,
    scope: Scope,
}

impl Unreadable {
    pub(crate) fn new(metrics: &Metrics, scope: Scope) -> Self {
        let shown = Family::<Labels, Gauge>::default();
        metrics.register("unreadable", |registry| {
            registry.register("etcd_cluster_unreadable", "1 if the EtcdCluster cannot be read", shown.clone());
        });
        Self { shown, scope }
    }

    /// Notes that an existing EtcdCluster cannot be read, or that it can be read or is gone.
    pub(crate) fn note(&self, etcd: &DynamicObject, is_unreadable: bool) {
        let labels = Labels { namespace: etcd.namespace().unwrap_or_default(), name: etcd.name_any() };
        if is_unreadable && self.scope.reconciles(etcd) {
            self.shown.get_or_create(&labels).set(1);
        } else {
            self.shown.remove(&labels);
        }
    }
}
