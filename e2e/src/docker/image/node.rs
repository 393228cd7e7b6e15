//! The image of Kubernetes' nodes: systemd, containerd, kubelet, kubeadm, a pod network, and the control plane's
//! images.

use super::{Daemon, MASKED, SUITE, copy, debootstrap, file, keep_address, mask_units, preload, released, script};
use crate::tools::{Kubernetes, NodePrograms, Tools};
use crate::world::World;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The name of the image in the examples, where the version follows it.
const IMAGE: &str = "cluster-api-provider-etcdadm/node";
const PACKAGES: &str = "systemd,systemd-sysv,dbus,iproute2,iptables,conntrack,ethtool,socat,kmod,procps,runc,util-linux,mount,\
    ca-certificates,hostname,containernetworking-plugins,busybox-static";
/// The pod network. It does not connect Pods of different nodes, but a Node is Ready with it, and nothing here needs
/// more. Kind's image has the plugins that it names as well.
const NETWORK: (&str, &str) = ("etc/cni/net.d/10-ptp.conflist", include_str!("node/ptp.conflist"));
/// Files, by their path in the image.
const FILES: [(&str, &str); 6] = [
    ("etc/containerd/config.toml", include_str!("node/containerd.toml")),
    ("etc/systemd/system/containerd.service", include_str!("node/containerd.service")),
    ("etc/systemd/system/prepare-node.service", include_str!("node/prepare-node.service")),
    ("etc/systemd/system/kubelet.service", include_str!("node/kubelet.service")),
    ("etc/kubernetes/kubelet.conf.d/10-container.conf", include_str!("node/kubelet.yaml")),
    (NETWORK.0, NETWORK.1),
];
const SCRIPTS: [(&str, &str); 2] = [
    ("usr/local/bin/prepare-node", include_str!("node/prepare-node.sh")),
    ("usr/local/bin/crictl", include_str!("node/crictl.sh")),
];
/// The units that start with the machine.
const UNITS: [&str; 3] = ["prepare-node.service", "containerd.service", "kubelet.service"];
const KUBERNETES: [&str; 2] = ["kubeadm", "kubelet"];
const CONTAINERD: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];

/// What nodes of one version of Kubernetes are made from.
pub(in crate::docker) struct Node {
    version: String,
    source: Source,
}

enum Source {
    /// Kind's released image, in an archive.
    Released(PathBuf),
    /// A root directory of our own making.
    Made(PathBuf),
}

impl Node {
    /// Prepares kind's released image, if a Docker daemon of this computer has it or can pull it. Call it outside a
    /// world.
    pub(in crate::docker) fn fetch_released(kubernetes: Kubernetes) -> Result<()> {
        released::fetch(&kubernetes.version()?)
    }

    /// Finds the image of nodes: kind's released one if there is one, otherwise one of our own programs, which is made
    /// if it is missing.
    pub(in crate::docker) fn ensure(kubernetes: Kubernetes, tools: &Tools) -> Result<Self> {
        let version = kubernetes.version()?;
        if let Some(archive) = released::find(&version)? {
            return Ok(Self { version, source: Source::Released(archive) });
        }
        let programs = NodePrograms::ensure(kubernetes)?;
        let masked = MASKED.join(" ");
        let built = [&programs.kubernetes, &programs.containerd].map(|path| path.to_string_lossy().into_owned());
        let mut parts = vec![SUITE, PACKAGES, &masked, &built[0], &built[1], preload::SOURCE];
        parts.extend(FILES.iter().chain(&SCRIPTS).flat_map(|(path, text)| [*path, *text]));
        let directory = super::root(&format!("node-{version}"), &parts, |root| fill(root, &programs, tools))?;
        Ok(Self { version, source: Source::Made(directory) })
    }

    /// Its version of Kubernetes, with the `v`.
    pub(in crate::docker) fn version(&self) -> &str {
        &self.version
    }

    /// Makes the image.
    pub(in crate::docker) async fn import(&self, world: &World, daemon: &Daemon) -> Result<()> {
        let name = format!("{IMAGE}:{}", self.version);
        match &self.source {
            Source::Made(directory) => {
                let unit = keep_address::unit(world)?;
                let root: [(&Path, &str); 1] = [(directory, ".")];
                daemon.import(&name, "/sbin/init", &[&root[..], &unit.paths()].concat()).await
            }
            Source::Released(archive) => {
                daemon.docker(&["load", "--quiet", "--input", &archive.to_string_lossy()]).await?;
                // Kind installs its pod network later, from outside. Ours has to be in the image from the start. (The
                // entrypoint of kind's image has its own way to handle another address: it changes the configuration.)
                let context = world.state(&format!("docker/node-{}", self.version))?;
                file(&context, "network.conflist", NETWORK.1)?;
                let from = released::name(&self.version);
                file(&context, "Dockerfile", &format!("FROM {from}\nCOPY network.conflist /{}\n", NETWORK.0))?;
                daemon.docker(&["build", "--quiet", "--tag", &name, &context.to_string_lossy()]).await.map(|_| ())
            }
        }
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
