//! Parts of an observation that may be in one of several states: the link to the Cluster, the certificates, the
//! template.

use controller_support::external::ClusterView;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use std::sync::Arc;

/// The Cluster that an EtcdCluster is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterLink {
    /// No Cluster names it.
    None {
        /// What would make a Cluster name it, for people.
        message: String,
        /// The Cluster that the EtcdCluster's label names, if that Cluster exists and is not being deleted.
        living: Option<String>,
    },
    /// One Cluster names it.
    One(Box<ClusterView>),
    /// Several name it.
    Several(Vec<ClusterView>),
    /// The EtcdCluster's label names a Cluster that names another etcd, or another Cluster than the one that names the
    /// EtcdCluster.
    UsesAnother {
        /// Which Clusters these are, and what to correct, for people.
        message: String,
        /// One of the Clusters that is not being deleted.
        living: Option<String>,
    },
}

impl ClusterLink {
    /// The Cluster, if there is exactly one.
    #[must_use]
    pub fn one(&self) -> Option<&ClusterView> {
        if let Self::One(cluster) = self { Some(cluster) } else { None }
    }

    /// Why there is not exactly one Cluster.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::One(_) => None,
            Self::None { message, .. } | Self::UsesAnother { message, .. } => Some(message.clone()),
            Self::Several(clusters) => {
                let names: Vec<&str> = clusters.iter().map(|cluster| cluster.name.as_str()).collect();
                Some(format!("Clusters {} all name this EtcdCluster; only one may", names.join(", ")))
            }
        }
    }

    /// A Cluster that names the EtcdCluster, or that its label names, and that is not being deleted. The Cluster may
    /// still need the data.
    #[must_use]
    pub fn living(&self) -> Option<&str> {
        match self {
            Self::One(cluster) => Some(cluster.as_ref()).filter(|cluster| !cluster.deleting).map(|c| c.name.as_str()),
            Self::Several(clusters) => clusters.iter().find(|cluster| !cluster.deleting).map(|c| c.name.as_str()),
            Self::None { living, .. } | Self::UsesAnother { living, .. } => living.as_deref(),
        }
    }
}

/// The CA and what is derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Not read: there is no Cluster yet, or the EtcdCluster is being deleted.
    Unknown,
    /// There is no CA.
    NoCa,
    /// The Secret with the CA belongs to another object of Cluster API, and is deleted with that object.
    OfAnother {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
    },
    /// The Secret cannot be used; the text says why.
    Invalid(String),
    /// The CA is not the one that has signed the API servers' client certificate.
    Replaced,
    /// The Secret exists but has lost its label. Without the label, no watch shows it.
    NotLabelled,
    /// There is a CA.
    Ca {
        /// The Secret with the CA certificate for the control plane has exactly this certificate, and no key.
        control_plane_ca: bool,
        /// The API servers' client certificate is staged, and does not have to be renewed yet.
        staged_client: bool,
        /// When that certificate expires.
        expires: Option<Timestamp>,
        /// When the CA expires, if it says when.
        ca_expires: Option<Timestamp>,
    },
}

/// How long before it expires the API servers' client certificate is renewed.
pub(crate) const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 365);

impl Certificates {
    /// Whether the control plane has all that it needs: the CA, and a client certificate that has not expired, even if
    /// it is to be renewed.
    #[must_use]
    pub fn serve(&self, now: Timestamp) -> bool {
        match self {
            Self::Ca { control_plane_ca, staged_client, expires, .. } => {
                *control_plane_ca && (*staged_client || expires.is_some_and(|expires| expires > now))
            }
            _ => false,
        }
    }

    /// When the API servers' client certificate is due to be renewed.
    #[must_use]
    pub fn renewed_at(&self) -> Option<Timestamp> {
        match self {
            Self::Ca { expires, .. } => expires.and_then(|expires| expires.checked_sub(RENEW_BEFORE).ok()),
            _ => None,
        }
    }
}

/// The template that the members' infrastructure is cloned from.
#[derive(Clone, Debug)]
pub enum Template {
    /// The template does not exist, or its kind does not. The text says which.
    NotFound(String),
    /// Nothing is known: it was not looked up, or the API server did not answer. The text says which.
    Unknown(String),
    /// The template exists.
    Found {
        /// The template.
        template: Arc<DynamicObject>,
        /// Kind of the clones.
        clones: ApiResource,
    },
}

impl Template {
    /// Why the template is not found, if it is not.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::NotFound(why) | Self::Unknown(why) => Some(why),
            Self::Found { .. } => None,
        }
    }
}
