//! The image of Kubernetes' nodes: systemd, containerd, kubelet, kubeadm, a pod network, and the control plane's images.

use super::{Daemon, MASKED, SUITE, copy, debootstrap, file, mask_units, preload, script};
use crate::tools::{NodePrograms, Tools};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The examples name it, with the version behind it.
const IMAGE: &str = "cluster-api-provider-etcdadm/node";
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,iptables,conntrack,ethtool,socat,kmod,procps,runc,util-linux,mount,\
    ca-certificates,hostname,containernetworking-plugins,busybox-static";
/// Files by their place in the image.
const FILES: [(&str, &str); 6] = [
    ("etc/containerd/config.toml", include_str!("node/containerd.toml")),
    ("etc/systemd/system/containerd.service", include_str!("node/containerd.service")),
    ("etc/systemd/system/prepare-node.service", include_str!("node/prepare-node.service")),
    ("etc/systemd/system/kubelet.service", include_str!("node/kubelet.service")),
    ("etc/kubernetes/kubelet.conf.d/10-container.conf", include_str!("node/kubelet.yaml")),
    ("etc/cni/net.d/10-bridge.conflist", include_str!("node/bridge.conflist")),
];
const SCRIPTS: [(&str, &str); 2] = [
    ("usr/local/bin/prepare-node", include_str!("node/prepare-node.sh")),
    ("usr/local/bin/crictl", include_str!("node/crictl.sh")),
];
/// Started with the machine.
const UNITS: [&str; 3] = ["prepare-node.service", "containerd.service", "kubelet.service"];
const KUBERNETES: [&str; 2] = ["kubeadm", "kubelet"];
const CONTAINERD: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];

/// The root directory of nodes of one version of Kubernetes.
pub(in crate::docker) struct Root {
    version: String,
    directory: PathBuf,
}

impl Root {
    /// Makes it if it is not there yet.
    pub(super) fn ensure(programs: &NodePrograms, tools: &Tools) -> Result<Self> {
        let masked = MASKED.join(" ");
        let built = [&programs.kubernetes, &programs.containerd].map(|path| path.to_string_lossy().into_owned());
        let mut parts = vec![SUITE, PACKAGES, &masked, &built[0], &built[1], preload::SOURCE];
        parts.extend(FILES.iter().chain(&SCRIPTS).flat_map(|(path, text)| [*path, *text]));
        let directory = super::root(&format!("node-{}", programs.version), &parts, |root| fill(root, programs, tools))?;
        Ok(Self { version: programs.version.clone(), directory })
    }

    /// Its version of Kubernetes, with the `v`.
    pub(in crate::docker) fn version(&self) -> &str {
        &self.version
    }

    /// Makes the image.
    pub(in crate::docker) async fn import(&self, daemon: &Daemon) -> Result<()> {
        daemon.import(&format!("{IMAGE}:{}", self.version), "/sbin/init", &[(&self.directory, ".")]).await
    }
}

fn fill(root: &Path, programs: &NodePrograms, tools: &Tools) -> Result<()> {
    debootstrap(PACKAGES, root)?;
    mask_units(root)?;
    for (path, text) in FILES {
        file(root, path, text)?;
    }
    for (path, text) in SCRIPTS {
        script(root, path, text)?;
    }
    for name in KUBERNETES {
        copy(&programs.kubernetes.join(name), root, &format!("usr/local/bin/{name}"))?;
    }
    for name in CONTAINERD {
        copy(&programs.containerd.join(name), root, &format!("usr/local/bin/{name}"))?;
    }
    copy(&tools.kubectl, root, "usr/local/bin/kubectl")?;
    let wanted = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wanted).context("create multi-user.target.wants")?;
    for unit in UNITS {
        symlink(format!("/etc/systemd/system/{unit}"), wanted.join(unit)).with_context(|| format!("enable {unit}"))?;
    }
    preload::images(root, programs)
}
