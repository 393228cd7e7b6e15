//! The command line: our own flags, which `--help` shows with their environment variables, and those of Cluster API's
//! managers.

mod families;
mod ignored;
#[cfg(test)]
mod tests;
mod values;

pub use ignored::Ignored;
pub use values::{Address, CipherSuites, Groups};

use crate::admin::Paths;
use crate::diagnostics::{TlsSettings, TlsVersion};
use crate::lease::Times;
use clap::{ArgAction, CommandFactory, Error, Parser, ValueEnum};
use controller_support::Scope;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The crates whose logs `-v 4` shows in detail.
const OURS: &str = "manager=debug,controller_support=debug,etcd_cluster_controller=debug,etcdadm_bootstrap=debug,\
                    cluster_hooks=debug";

/// Managed external etcd for Cluster API.
///
/// If you give a flag twice, the last value counts.
#[derive(Clone, Debug, Parser)]
#[command(name = "manager", version, args_override_self = true)]
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

    /// Work on this namespace alone. No permission for objects of others is needed. Default: on all.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, value_parser = values::namespace)]
    pub namespace: String,

    /// Reconcile only objects whose label cluster.x-k8s.io/watch-filter has this value. Default: all.
    #[arg(long, value_name = "VALUE", default_value = "", hide_default_value = true, value_parser = values::label)]
    pub watch_filter: String,

    /// Wait for the lease before controllers start, so that only one of several managers works. Two at once are safe, but
    /// do everything twice.
    #[arg(
        long,
        env = "LEADER_ELECT",
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "true",
        value_parser = values::boolean
    )]
    pub leader_elect: bool,

    /// Namespace of the lease.
    #[arg(long, env = "LEADER_ELECTION_NAMESPACE", default_value = "capi-etcdadm-system")]
    pub leader_election_namespace: String,

    /// How long the lease stays with a holder that does not renew it. In whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::duration)]
    pub leader_elect_lease_duration: Duration,

    /// When a holder that could not renew the lease ends. It renews it in half that time.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = values::duration)]
    pub leader_elect_renew_deadline: Duration,

    /// How often others look at the lease, and the holder tries again after a failure.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = values::duration)]
    pub leader_elect_retry_period: Duration,

    /// Where /healthz, /readyz and /metrics are served, over plain HTTP.
    #[arg(long, env = "ADMIN_ADDRESS", default_value = "127.0.0.1:9440", value_parser = values::address)]
    pub admin_address: Address,

    /// Where /healthz and /readyz alone are served, as by Cluster API's managers: in place of --admin-address.
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub health_addr: Option<Address>,

    /// Where /metrics is served over TLS, to callers whose token the API server knows, and whom it lets `get` the path
    /// /metrics. Such as :8443.
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub diagnostics_address: Option<Address>,

    /// Folder with the certificate for --diagnostics-address: tls.crt and tls.key, which are read again every minute.
    /// Without it, the certificate is self-signed.
    #[arg(long, value_name = "FOLDER")]
    pub diagnostics_cert_dir: Option<PathBuf>,

    /// Serve --diagnostics-address over plain HTTP, without authentication.
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true",
        default_value = "false",
        value_parser = values::boolean
    )]
    pub insecure_diagnostics: bool,

    /// The lowest version of TLS at --diagnostics-address: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12", value_parser = values::tls_version)]
    pub tls_min_version: TlsVersion,

    /// Cipher suites of TLS 1.2 at --diagnostics-address, separated by commas. Default: all that this program has.
    #[arg(long, value_name = "NAMES", default_value = "", hide_default_value = true, value_parser = values::cipher_suites)]
    pub tls_cipher_suites: CipherSuites,

    /// Groups for the key exchange of TLS at --diagnostics-address, by their numbers, separated by commas: 23 (P-256), 24
    /// (P-384), 29 (X25519). Default: all that this program has.
    #[arg(long, value_name = "NUMBERS", default_value = "", hide_default_value = true, value_parser = values::groups)]
    pub tls_curve_preferences: Groups,

    /// A further address for /metrics over plain HTTP, as cluster-api-operator and older managers call it.
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    pub metrics_bind_addr: Option<Address>,

    /// Objects that each controller reconciles at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent_reconciles: Option<u16>,

    /// Clusters that are reconciled at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub cluster_concurrency: Option<u16>,

    /// EtcdClusters that are reconciled at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub etcdcluster_concurrency: Option<u16>,

    /// EtcdadmConfigs that are reconciled at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub etcdadmconfig_concurrency: Option<u16>,

    /// Form of the logs.
    #[arg(long, env = "LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,

    /// The same as --log-format, as Cluster API's managers call it. It wins over that.
    #[arg(long, value_enum)]
    pub logging_format: Option<LogFormat>,

    /// How much is logged: up to 3 the level info, 4 and 5 debug for this program, from 6 on debug for its libraries too.
    #[arg(short = 'v', long = "v", value_name = "N", default_value_t = 2)]
    pub verbosity: u32,

    /// What is logged, such as `info` or `info,kube=debug`. It wins over --v.
    #[arg(long, env = "LOG_LEVEL")]
    pub log_level: Option<String>,

    /// Flags without effect.
    #[command(flatten)]
    pub ignored: Ignored,
}

impl Flags {
    /// Reads a command line, which begins with the name of the program.
    ///
    /// # Errors
    /// If a flag or a value is wrong. An unknown flag is wrong, unless its name shows that it does no harm.
    pub fn from_arguments(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Self, Error> {
        let divided = families::divide(&mut Self::command(), arguments.into_iter().map(Into::into))?;
        let mut flags = Self::try_parse_from(divided.known)?;
        flags.ignored.0.extend(divided.ignored);
        Ok(flags)
    }

    /// What this process works on.
    #[must_use]
    pub fn scope(&self) -> Scope {
        let given = |value: &String| Some(value.clone()).filter(|value| !value.is_empty());
        Scope { namespace: given(&self.namespace), watch_filter: given(&self.watch_filter) }
    }

    /// The times of the lease.
    ///
    /// # Errors
    /// If they do not leave a holder enough time to stop before another manager may start.
    pub fn lease_times(&self) -> anyhow::Result<Times> {
        let times = Times {
            duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        anyhow::ensure!(
            times.duration.subsec_nanos() == 0,
            "--leader-elect-lease-duration {:?} must be whole seconds",
            times.duration
        );
        anyhow::ensure!(
            times.duration > times.renew_deadline,
            "--leader-elect-lease-duration {:?} must be longer than --leader-elect-renew-deadline {:?}",
            times.duration,
            times.renew_deadline
        );
        anyhow::ensure!(
            times.renew_deadline > times.retry_period && !times.retry_period.is_zero(),
            "--leader-elect-renew-deadline {:?} must be longer than --leader-elect-retry-period {:?}, and that above 0s",
            times.renew_deadline,
            times.retry_period
        );
        Ok(times)
    }

    /// The addresses that are served over plain HTTP, each with its flag.
    #[must_use]
    pub fn plain(&self) -> Vec<(&'static str, SocketAddr, Paths)> {
        let admin = match self.health_addr {
            Some(address) => ("--health-addr", address, Paths { health: true, metrics: false }),
            None => ("--admin-address", self.admin_address, Paths { health: true, metrics: true }),
        };
        let diagnostics = self.diagnostics_address.filter(|_| self.insecure_diagnostics);
        let further = [("--diagnostics-address", diagnostics), ("--metrics-bind-addr", self.metrics_bind_addr)];
        let further = further.into_iter().filter_map(|(flag, address)| Some((flag, address?)));
        let further = further.map(|(flag, address)| (flag, address, Paths { health: false, metrics: true }));
        let mut all: Vec<(&'static str, SocketAddr, Paths)> = Vec::new();
        for (flag, Address(address), paths) in [admin].into_iter().chain(further) {
            let Some(address) = address else { continue };
            // An address cannot be bound twice.
            match all.iter_mut().find(|(_, known, _)| *known == address) {
                Some((.., known)) => known.metrics = true,
                None => all.push((flag, address, paths)),
            }
        }
        all
    }

    /// The address at which metrics are served over TLS.
    #[must_use]
    pub fn secure(&self) -> Option<SocketAddr> {
        self.diagnostics_address.filter(|_| !self.insecure_diagnostics)?.0
    }

    /// The TLS that callers have to use at that address.
    #[must_use]
    pub fn tls(&self) -> TlsSettings {
        TlsSettings {
            least: self.tls_min_version,
            suites: self.tls_cipher_suites.0.clone(),
            groups: self.tls_curve_preferences.0.clone(),
        }
    }

    /// The flags that were given and do nothing, each with the reason.
    #[must_use]
    pub fn without_effect(&self) -> &[(String, &'static str)] {
        &self.ignored.0
    }

    /// How many reconciles of a controller run at the same time, if a flag says so.
    #[must_use]
    pub fn concurrency(&self, controller: ControllerName) -> Option<u16> {
        let own = match controller {
            ControllerName::EtcdCluster => self.etcdcluster_concurrency,
            ControllerName::EtcdadmBootstrap => self.etcdadmconfig_concurrency,
            ControllerName::ClusterHooks | ControllerName::ControlPlaneRemediation => self.cluster_concurrency,
        };
        own.or(self.max_concurrent_reconciles)
    }

    /// The form of the logs.
    #[must_use]
    pub fn logs(&self) -> LogFormat {
        self.logging_format.unwrap_or(self.log_format)
    }

    /// What is logged.
    #[must_use]
    pub fn log_filter(&self) -> String {
        match (&self.log_level, self.verbosity) {
            (Some(level), _) => level.clone(),
            (None, verbosity) => filter_of_verbosity(verbosity),
        }
    }
}

/// What is logged with this `--v`.
#[must_use]
pub fn filter_of_verbosity(verbosity: u32) -> String {
    match verbosity {
        0..=3 => "info".to_owned(),
        4..=5 => format!("info,{OURS}"),
        _ => "debug".to_owned(),
    }
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
