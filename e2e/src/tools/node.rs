//! The programs of Kubernetes' nodes, built only if a caller asks for them.

use std::path::PathBuf;

use anyhow::Result;

use super::build;
use super::module::{CONTAINERD, KUBERNETES_NODE, KUBERNETES_NODE_PREVIOUS, Module};

/// The programs of a node, and of the control plane that may run on it.
#[derive(Debug, Clone)]
pub struct NodePrograms {
    /// Version of Kubernetes, with its `v`.
    pub version: String,
    /// Directory with kube-apiserver, kube-controller-manager, kube-scheduler, kubeadm and kubelet.
    pub kubernetes: PathBuf,
    /// Directory with containerd, its shim for runc, and ctr.
    pub containerd: PathBuf,
}

/// A release of Kubernetes that nodes may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kubernetes {
    /// The release that the examples name.
    Current,
    /// The release before it, which an upgrade starts from.
    Previous,
}

impl Kubernetes {
    fn module(self) -> &'static Module {
        match self {
            Self::Current => &KUBERNETES_NODE,
            Self::Previous => &KUBERNETES_NODE_PREVIOUS,
        }
    }

    /// Its version, with the `v`.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub fn version(self) -> Result<String> {
        build::version(self.module())
    }
}

impl NodePrograms {
    /// Finds them, building what is missing (about five minutes). Inside a world only the former is possible.
    ///
    /// # Errors
    /// When one cannot be built.
    pub fn ensure(kubernetes: Kubernetes) -> Result<Self> {
        Ok(Self {
            version: kubernetes.version()?,
            kubernetes: build::ensure(kubernetes.module(), &|_| true)?,
            containerd: build::ensure(&CONTAINERD, &|_| true)?,
        })
    }
}
