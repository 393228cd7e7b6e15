//! Command line. Every flag but `--kubeconfig` can be given as an environment variable too.

use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Managed external etcd for Cluster API.
#[derive(Clone, Debug, Parser)]
#[command(name = "manager", version)]
pub struct Flags {
    /// Controllers to run, separated by commas.
    #[arg(
        long,
        env = "CONTROLLERS",
        value_delimiter = ',',
        default_value = "etcd-cluster,etcdadm-bootstrap,cluster-hooks,control-plane-remediation"
    )]
    pub controllers: Vec<ControllerName>,

    /// Kubeconfig of the management cluster. Default: KUBECONFIG, or ~/.kube/config, or that of the Pod this runs in.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,

    /// Wait for the lease before controllers start, so that only one of several managers works. Two at once are safe, but
    /// do everything twice.
    #[arg(long, env = "LEADER_ELECT", action = clap::ArgAction::Set, default_value_t = true)]
    pub leader_elect: bool,

    /// Namespace of the lease.
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", default_value = "capi-etcdadm-system")]
    pub leader_election_namespace: String,

    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, env = "ADMIN_ADDRESS", default_value = "127.0.0.1:9440")]
    pub admin_address: SocketAddr,

    /// Form of the logs.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// What is logged, such as `info` or `info,kube=debug`.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// The controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum ControllerName {
    /// EtcdCluster -> Machines and membership.
    EtcdCluster,
    /// EtcdadmConfig -> bootstrap data.
    EtcdadmBootstrap,
    /// Cluster and control plane -> pause, endpoints, client certificate.
    ClusterHooks,
    /// KubeadmControlPlane -> replacement of unhealthy Machines that it defers where etcd is external.
    ControlPlaneRemediation,
}

/// Forms of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_subset_of_the_controllers_can_be_asked_for() {
        let flags =
            Flags::try_parse_from(["manager", "--controllers", "cluster-hooks,etcd-cluster", "--leader-elect=false"]);
        let flags = flags.unwrap();
        assert_eq!(flags.controllers, [ControllerName::ClusterHooks, ControllerName::EtcdCluster]);
        assert!(!flags.leader_elect);
        let error = Flags::try_parse_from(["manager", "--controllers", "backup"]).unwrap_err().to_string();
        assert!(error.contains("--controllers") && error.contains("etcdadm-bootstrap"), "{error}");
    }
}
