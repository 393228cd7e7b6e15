//! The command line. It keeps the names, defaults and conventions of the etcdadm that this program replaces.

mod explain;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use etcd_values::{CLUSTER_ID, EtcdVersion, INIT_NOT_AFTER, TIMEOUT};
use time::OffsetDateTime;
use tracing::level_filters::LevelFilter;

use crate::checksum::Sha256;
use crate::endpoint::Endpoint;

/// What was asked for.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "etcdadm",
    about = "Makes this machine a member of an etcd cluster",
    disable_help_subcommand = true,
    args_override_self = true
)]
pub struct CommandLine {
    /// Least severe messages to show: error, warn, info, debug or trace.
    #[arg(short = 'l', long, global = true, default_value = "info", value_parser = values::log_level)]
    pub log_level: LevelFilter,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The things this program does.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Start a new etcd cluster with this machine as its only member.
    #[command(args_override_self = true)]
    Init(InitArgs),
    /// Join this machine to an existing etcd cluster.
    #[command(args_override_self = true)]
    Join(JoinArgs),
    /// Show the version of this program.
    #[command(args_override_self = true)]
    Version(VersionArgs),
}

/// Arguments of `init`.
#[derive(Clone, Debug, Args)]
pub struct InitArgs {
    /// Time (RFC 3339) after which a machine that is not a member yet starts no new cluster. Bootstrap data sets it.
    #[arg(long, value_name = "TIME", env = INIT_NOT_AFTER, value_parser = values::time)]
    pub not_after: Option<OffsetDateTime>,
    /// What init and join share.
    #[command(flatten)]
    pub member: MemberArgs,
}

/// Arguments of `join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArgs {
    /// Client URLs of members of the cluster, separated by commas; they are tried in turn.
    #[arg(value_name = "ENDPOINT[,ENDPOINT...]", required = true, num_args = 1.., value_delimiter = ',')]
    pub endpoints: Vec<Endpoint>,
    /// Try again when the cluster cannot take a member just now.
    #[arg(long, default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = ArgAction::Set, value_parser = values::boolean)]
    pub retry: bool,
    /// ID of the cluster, in hexadecimal: endpoints of another one are passed over. Bootstrap data sets it.
    #[arg(long, value_name = "HEX", env = CLUSTER_ID, value_parser = values::id)]
    pub cluster_id: Option<u64>,
    /// What init and join share.
    #[command(flatten)]
    pub member: MemberArgs,
}

/// Arguments that init and join share.
#[derive(Clone, Debug, Args)]
pub struct MemberArgs {
    /// Name of the member [default: the member's own, else the host name].
    #[arg(long)]
    pub name: Option<String>,
    /// Version of etcd to install and run [default: the member's own, else 3.6.16].
    #[arg(long, value_parser = values::version)]
    pub version: Option<EtcdVersion>,
    /// Where releases are downloaded from: the URL above the `v<version>` folders.
    #[arg(long, default_value = crate::release_url::DEFAULT_RELEASE_URL)]
    pub release_url: String,
    /// SHA-256 that the release archive must have, in hexadecimal [default: what SHA256SUMS beside it says].
    #[arg(long, value_name = "HEX")]
    pub release_sha256: Option<Sha256>,
    /// Most time that connecting to the release server may take.
    #[arg(long, default_value = "10s", value_parser = values::duration)]
    pub download_connect_timeout: Duration,
    /// Directory of the certificates and of ca.crt and ca.key [default: that of the last run, else /etc/etcd/pki].
    #[arg(long, value_name = "DIRECTORY")]
    pub certs_dir: Option<PathBuf>,
    /// This member's own address [default: the member's own, else the address towards the cluster or the default route].
    #[arg(long, value_name = "IP")]
    pub bind_address: Option<std::net::IpAddr>,
    /// More names and addresses for the server certificate, separated by commas.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub server_cert_extra_sans: Vec<String>,
    /// Directory that etcd, etcdctl and etcdutl are installed into [default: the member's own, else /opt/bin/].
    #[arg(long)]
    pub install_dir: Option<PathBuf>,
    /// Directory of etcd's data [default: that of /etc/etcd/etcd.env, else /var/lib/etcd].
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// What runs etcd; only systemd.
    #[arg(long, default_value = "systemd", value_parser = values::init_system)]
    pub init_system: String,
    /// TLS 1.2 cipher suites that etcd may use, separated by commas [default: those of the last run, else Go's].
    #[arg(long, value_name = "SUITE,...", value_delimiter = ',')]
    pub cipher_suites: Vec<String>,
    /// A setting of etcd, by the name of its flag; may be repeated [default: those of the last run].
    #[arg(long, value_name = "NAME=VALUE", value_parser = values::etcd_flag)]
    pub etcd_flag: Vec<(String, String)>,
    /// How many learners the cluster takes at once, the same on every member; needs etcd 3.6 [default: that of the last
    /// run, else 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10))]
    pub max_learners: Option<u32>,
    /// Give up after this time.
    #[arg(long, default_value = "10m", env = TIMEOUT, value_parser = values::duration)]
    pub timeout: Duration,
}

/// Arguments of `version`.
#[derive(Clone, Copy, Debug, Args)]
pub struct VersionArgs {
    /// Only the number.
    #[arg(long, default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = ArgAction::Set, value_parser = values::boolean)]
    pub short: bool,
    /// `json` for a document.
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
}

/// Machine-readable forms of `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// A JSON document with upstream's `clientVersion` object.
    Json,
}

/// Parses the command line, whose first word is the program name.
///
/// # Errors
/// The error can print itself and knows its exit code: 2 for a command line that cannot be parsed, 0 for `--help`.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<CommandLine, clap::Error> {
    let matches = CommandLine::command().try_get_matches_from(args).map_err(explain::explain)?;
    CommandLine::from_arg_matches(&matches)
}

#[cfg(test)]
mod tests;
