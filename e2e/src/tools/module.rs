//! What is built: one entry per directory under `e2e/tools/`.

use anyhow::{Context, Result};

/// A Go module of ours that pins some programs.
pub(super) struct Module {
    /// Its directory under `e2e/tools/`, and the start of its name in the cache.
    pub name: &'static str,
    /// The module it exists for; its version is the version of the programs.
    pub source: &'static str,
    /// What is built from it.
    pub programs: &'static [Program],
    /// Where the version is linked in: for each part, the Go variable that takes it.
    pub version_variables: &'static [(&'static str, VersionPart)],
    /// Go's build tags, separated by commas.
    pub tags: &'static str,
}

/// A program of a module.
pub(super) struct Program {
    /// File name of the result.
    pub name: &'static str,
    /// Go package that is built.
    pub package: &'static str,
}

/// A part of a version such as `v1.36.3`.
#[derive(Clone, Copy)]
pub(super) enum VersionPart {
    /// All of it, with the `v`.
    Whole,
    /// `1`
    Major,
    /// `36`
    Minor,
}

/// etcd 3.6: the management plane's store, and what machines install.
pub(super) const ETCD_3_6: Module = Module {
    name: "etcd-3.6",
    source: "go.etcd.io/etcd/server/v3",
    programs: ETCD_PROGRAMS,
    version_variables: &[],
    tags: "",
};

/// An earlier patch version of etcd 3.6, for machines.
pub(super) const ETCD_3_6_10: Module = Module { name: "etcd-3.6.10", ..ETCD_3_6 };

/// etcd 3.5, for machines.
pub(super) const ETCD_3_5: Module = Module { name: "etcd-3.5", ..ETCD_3_6 };

/// etcd 3.7, for machines.
pub(super) const ETCD_3_7: Module = Module { name: "etcd-3.7", ..ETCD_3_6 };

const ETCD_PROGRAMS: &[Program] = &[
    Program { name: "etcd", package: "go.etcd.io/etcd/server/v3" },
    Program { name: "etcdctl", package: "go.etcd.io/etcd/etcdctl/v3" },
    Program { name: "etcdutl", package: "go.etcd.io/etcd/etcdutl/v3" },
];

/// The parts of Kubernetes that a management plane needs.
pub(super) const KUBERNETES: Module = Module {
    name: "kubernetes",
    source: "k8s.io/kubernetes",
    programs: &[
        Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
        Program { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" },
        Program { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" },
    ],
    version_variables: KUBERNETES_VERSION,
    tags: "",
};

/// The same of an old release. Its API server supports no newer controller manager, and only a kubectl that differs by
/// at most one minor release.
pub(super) const KUBERNETES_1_33: Module = Module { name: "kubernetes-1.33", ..KUBERNETES };

/// Without these the programs call themselves v0.0.0, which kubeadm and version checks refuse.
const KUBERNETES_VERSION: &[(&str, VersionPart)] = &[
    ("k8s.io/component-base/version.gitVersion", VersionPart::Whole),
    ("k8s.io/component-base/version.gitMajor", VersionPart::Major),
    ("k8s.io/component-base/version.gitMinor", VersionPart::Minor),
];

/// The programs of Kubernetes' nodes and control planes.
pub(super) const KUBERNETES_NODE: Module = Module {
    name: "kubernetes-node",
    source: "k8s.io/kubernetes",
    programs: NODE_PROGRAMS,
    version_variables: KUBERNETES_VERSION,
    tags: "",
};

/// The same of the previous release, which an upgrade starts from.
pub(super) const KUBERNETES_NODE_PREVIOUS: Module = Module {
    name: "kubernetes-node-previous",
    source: "k8s.io/kubernetes",
    programs: NODE_PROGRAMS,
    version_variables: KUBERNETES_VERSION,
    tags: "",
};

const NODE_PROGRAMS: &[Program] = &[
    Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
    Program { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" },
    Program { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" },
    Program { name: "kubeadm", package: "k8s.io/kubernetes/cmd/kubeadm" },
    Program { name: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet" },
];

/// The container runtime of nodes.
pub(super) const CONTAINERD: Module = Module {
    name: "containerd",
    source: "github.com/containerd/containerd/v2",
    programs: &[
        Program { name: "containerd", package: "github.com/containerd/containerd/v2/cmd/containerd" },
        Program {
            name: "containerd-shim-runc-v2",
            package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        },
        Program { name: "ctr", package: "github.com/containerd/containerd/v2/cmd/ctr" },
    ],
    version_variables: &[("github.com/containerd/containerd/v2/version.Version", VersionPart::Whole)],
    tags: "",
};

/// The judge of histories: our own program, built on etcd's robustness suite.
pub(super) const ROBUSTNESS: Module = Module {
    name: "robustness",
    source: "go.etcd.io/etcd/tests/v3",
    programs: &[Program { name: "judge", package: "." }],
    version_variables: &[],
    tags: "",
};

const CLUSTER_API_VERSION: &[(&str, VersionPart)] =
    &[("sigs.k8s.io/cluster-api/version.gitVersion", VersionPart::Whole)];
const CAPI_BOOTSTRAP: Program =
    Program { name: "capi-bootstrap", package: "sigs.k8s.io/cluster-api/bootstrap/kubeadm" };
const CAPI_CONTROL_PLANE: Program =
    Program { name: "capi-control-plane", package: "sigs.k8s.io/cluster-api/controlplane/kubeadm" };
const MANAGERS: &[Program] =
    &[Program { name: "capi-core", package: "sigs.k8s.io/cluster-api/core" }, CAPI_BOOTSTRAP, CAPI_CONTROL_PLANE];
const MANAGERS_AT_THE_ROOT: &[Program] =
    &[Program { name: "capi-core", package: "sigs.k8s.io/cluster-api" }, CAPI_BOOTSTRAP, CAPI_CONTROL_PLANE];
const CAPD: Program = Program { name: "capd", package: "sigs.k8s.io/cluster-api/test/infrastructure/docker" };

/// Cluster API's managers.
pub(super) const CLUSTER_API: Module = managers("cluster-api", MANAGERS);

/// The same of a later patch version.
pub(super) const CLUSTER_API_1_14_2: Module = managers("cluster-api-1.14.2", MANAGERS);

/// The same of the version between the newest and the oldest.
pub(super) const CLUSTER_API_1_13: Module = managers("cluster-api-1.13", MANAGERS_AT_THE_ROOT);

/// The same of the oldest supported version.
pub(super) const CLUSTER_API_1_12: Module = managers("cluster-api-1.12", MANAGERS_AT_THE_ROOT);

const fn managers(name: &'static str, programs: &'static [Program]) -> Module {
    Module { name, source: "sigs.k8s.io/cluster-api", programs, version_variables: CLUSTER_API_VERSION, tags: "" }
}

/// Cluster API's command-line tool.
pub(super) const CLUSTERCTL: Module = Module {
    name: "clusterctl",
    source: "sigs.k8s.io/cluster-api",
    programs: &[Program { name: "clusterctl", package: "sigs.k8s.io/cluster-api/cmd/clusterctl" }],
    version_variables: CLUSTER_API_VERSION,
    tags: "",
};

/// Cluster API's docker infrastructure. It is in another module than the other managers.
pub(super) const CLUSTER_API_DOCKER: Module = Module {
    name: "cluster-api-docker",
    source: "sigs.k8s.io/cluster-api/test",
    programs: &[CAPD],
    version_variables: CLUSTER_API_VERSION,
    tags: "",
};

/// The docker infrastructure of the oldest supported version.
pub(super) const CLUSTER_API_DOCKER_1_12: Module = Module {
    name: "cluster-api-1.12",
    source: "sigs.k8s.io/cluster-api/test",
    programs: &[CAPD],
    version_variables: CLUSTER_API_VERSION,
    tags: "",
};

/// Cluster API's OpenStack infrastructure, for its manifests alone.
pub(super) const CLUSTER_API_OPENSTACK: Module =
    of_manifests("cluster-api-openstack", "sigs.k8s.io/cluster-api-provider-openstack");

/// The Prometheus operator, for its CRDs alone.
pub(super) const PROMETHEUS_OPERATOR: Module =
    of_manifests("prometheus-operator", "github.com/prometheus-operator/prometheus-operator");

/// cert-manager, for its CRDs alone.
pub(super) const CERT_MANAGER: Module = of_manifests("cert-manager", "github.com/cert-manager/cert-manager");

/// The operator that installs providers, for its CRDs alone.
pub(super) const CLUSTER_API_OPERATOR: Module =
    of_manifests("cluster-api-operator", "sigs.k8s.io/cluster-api-operator");

const fn of_manifests(name: &'static str, source: &'static str) -> Module {
    Module { name, source, programs: &[], version_variables: &[], tags: "" }
}

/// The program that makes metrics of the API server's objects.
pub(super) const KUBE_STATE_METRICS: Module = Module {
    name: "kube-state-metrics",
    source: "k8s.io/kube-state-metrics/v2",
    programs: &[Program { name: "kube-state-metrics", package: "k8s.io/kube-state-metrics/v2" }],
    version_variables: &[],
    tags: "",
};

/// Prometheus' command-line tool. It only tests rules here, so it is built without the service discoveries of clouds.
pub(super) const PROMTOOL: Module = Module {
    name: "promtool",
    source: "github.com/prometheus/prometheus",
    programs: &[Program { name: "promtool", package: "github.com/prometheus/prometheus/cmd/promtool" }],
    version_variables: &[],
    tags: "remove_all_sd",
};

impl Module {
    /// The arguments of `go build` for every program of this module. They are part of its hash.
    pub(super) fn build_arguments(&self, version: &str) -> Vec<String> {
        let mut link = String::from("-s -w");
        for (variable, part) in self.version_variables {
            link.push_str(&format!(" -X {variable}={}", part.of(version)));
        }
        let mut arguments = vec!["-trimpath".to_owned(), "-ldflags".to_owned(), link];
        if !self.tags.is_empty() {
            arguments.extend(["-tags".to_owned(), self.tags.to_owned()]);
        }
        arguments
    }
}

impl VersionPart {
    fn of(self, version: &str) -> &str {
        let mut numbers = version.trim_start_matches('v').split('.');
        match self {
            Self::Whole => version,
            Self::Major => numbers.next().unwrap_or_default(),
            Self::Minor => numbers.nth(1).unwrap_or_default(),
        }
    }
}

/// The version of `module`, with its `v`, that the text of a `go.mod` requires.
///
/// # Errors
/// When the text does not require the module.
pub(super) fn required_version<'a>(go_mod: &'a str, module: &str) -> Result<&'a str> {
    go_mod
        .lines()
        .find_map(|line| {
            let mut words = line.trim().trim_start_matches("require ").split_whitespace();
            let (name, version) = (words.next()?, words.next()?);
            (name == module && version.starts_with('v')).then_some(version)
        })
        .with_context(|| format!("go.mod does not require {module}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_version_is_found_in_both_forms_and_not_mistaken_for_a_replacement() {
        let go_mod = "module x\n\nrequire a.io/b v1.2.3\n\nrequire (\n\ta.io/c v4.5.6 // indirect\n)\n\nreplace a.io/d => a.io/d v7.8.9\n";
        assert_eq!(required_version(go_mod, "a.io/b").unwrap(), "v1.2.3");
        assert_eq!(required_version(go_mod, "a.io/c").unwrap(), "v4.5.6");
        assert!(required_version(go_mod, "a.io/d").is_err());
    }

    #[test]
    fn versions_are_linked_in_where_they_are_asked_for() {
        assert_eq!(
            KUBERNETES.build_arguments("v1.36.3").last().unwrap(),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 \
             -X k8s.io/component-base/version.gitMinor=36"
        );
        assert_eq!(ETCD_3_6.build_arguments("v3.6.16").last().unwrap(), "-s -w");
    }
}
