//! What Kubernetes' nodes are made of: built only where it is asked for.

use std::path::PathBuf;

use anyhow::Result;

use super::build;
use super::module::{CONTAINERD, KUBERNETES_NODE, KUBERNETES_NODE_PREVIOUS, Module};

/// The programs of a node, and of the control plane that it may carry.
#[derive(Debug, Clone)]
pub struct NodePrograms {
    /// Version of Kubernetes, with its `v`.
    pub version: String,
    /// Directory with kube-apiserver, kube-controller-manager, kube-scheduler, kubeadm and kubelet.
    pub kubernetes: PathBuf,
    /// Directory with containerd, its shim for runc, and ctr.
    pub containerd: PathBuf,
}

impl NodePrograms {
    /// The version that is pinned, with its `v`.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub fn version() -> Result<String> {
        build::version(&KUBERNETES_NODE)
    }

    /// That of the release before.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub fn previous_version() -> Result<String> {
        build::version(&KUBERNETES_NODE_PREVIOUS)
    }

    /// Finds them, building what is missing (about five minutes). Inside a world only the former is possible.
    ///
    /// # Errors
    /// When one cannot be built.
    pub fn ensure() -> Result<Self> {
        Self::of(&KUBERNETES_NODE)
    }

    /// The same of the release before.
    ///
    /// # Errors
    /// When one cannot be built.
    pub fn ensure_previous() -> Result<Self> {
        Self::of(&KUBERNETES_NODE_PREVIOUS)
    }

    fn of(kubernetes: &Module) -> Result<Self> {
        Ok(Self {
            version: build::version(kubernetes)?,
            kubernetes: build::ensure(kubernetes, &|_| true)?,
            containerd: build::ensure(&CONTAINERD, &|_| true)?,
        })
    }
}
