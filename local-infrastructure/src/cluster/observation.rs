//! The input of a decision about a LocalCluster.

use crate::crd::LocalCluster;
use api::names;
use controller_support::external::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// All that a decision depends on.
pub(super) struct Observation {
    /// When it was observed.
    pub(super) now: Time,
    /// The Cluster that it is for, if it exists.
    pub(super) cluster: Option<ClusterView>,
    /// The LocalCluster.
    pub(super) object: LocalCluster,
}

impl Observation {
    pub(super) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Whether the LocalCluster has the annotation that pauses it, or its Cluster is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.object.annotations().contains_key(names::PAUSED_ANNOTATION)
            || self.cluster.as_ref().is_some_and(ClusterView::is_paused)
    }
}
