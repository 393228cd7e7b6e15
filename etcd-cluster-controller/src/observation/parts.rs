//! Parts of an observation that may be in one of several states: the link to the Cluster, the certificates, the template.

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
        /// What would.
        message: String,
        /// The Cluster that its label says, if that exists and is not being deleted.
        living: Option<String>,
    },
    /// One Cluster names it.
    One(Box<ClusterView>),
    /// Several name it.
    Several(Vec<ClusterView>),
    /// Its label says one Cluster, which names another etcd, or is not the one that names it.
    UsesAnother {
        /// Which.
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

    /// A Cluster that names it, or that its label says, and that is not being deleted: its data may still be needed.
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
    /// The Secret with the CA belongs to another object of Cluster API, and goes with it.
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
    /// The Secret is there and has lost its label, without which no watch shows it.
    NotLabelled,
    /// There is a CA.
    Ca {
        /// The Secret with the CA certificate for the control plane holds just that.
        control_plane_ca: bool,
        /// The API servers' client certificate is kept ready, and is good for a while.
        staged_client: bool,
        /// When that certificate expires.
        expires: Option<Timestamp>,
        /// When the CA expires, if it says when.
        ca_expires: Option<Timestamp>,
    },
}

/// A client certificate of API servers that expires sooner is made again.
pub(crate) const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 365);

impl Certificates {
    /// Whether the control plane has all that it needs: the CA, and a certificate that is good still, also while it is renewed.
    #[must_use]
    pub fn serve(&self, now: Timestamp) -> bool {
        match self {
            Self::Ca { control_plane_ca, staged_client, expires, .. } => {
                *control_plane_ca && (*staged_client || expires.is_some_and(|expires| expires > now))
            }
            _ => false,
        }
    }

    /// When the API servers' client certificate is made again.
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
    /// It does not exist, or its kind does not; the text says which.
    NotFound(String),
    /// Nothing is known: it was not looked up, or the API server did not answer. The text says which.
    Unknown(String),
    /// It is there.
    Found {
        /// The template.
        template: Arc<DynamicObject>,
        /// Kind of the clones.
        clones: ApiResource,
    },
}

impl Template {
    /// Why it is not there, if it is not.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::NotFound(why) | Self::Unknown(why) => Some(why),
            Self::Found { .. } => None,
        }
    }
}
