//! Kubernetes of the management plane, in the tested versions.

use serde::{Deserialize, Serialize};

use super::module::{KUBERNETES, KUBERNETES_1_33, Module};

/// A release of Kubernetes that a management plane may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagementKubernetes {
    /// The release that all other scenarios run on.
    V1_36,
    /// The oldest release that Cluster API 1.14 permits.
    V1_33,
}

impl ManagementKubernetes {
    pub(super) fn module(self) -> &'static Module {
        match self {
            Self::V1_36 => &KUBERNETES,
            Self::V1_33 => &KUBERNETES_1_33,
        }
    }

    /// Whether its API server has every kind of `config/default`. The others need `config/before-kubernetes-1.36`.
    pub fn takes_all_policies(self) -> bool {
        self == Self::V1_36
    }
}
