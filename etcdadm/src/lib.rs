//! The node program `etcdadm`: makes this machine a member of an etcd cluster.
//!
//! `init` starts a new cluster, and `join` adds the machine to an existing one. Both first check all that can be
//! checked, then install etcd, and only then change anything that others depend on. Both may be killed at any point and
//! run again. `docs/etcdadm.md` is the user's manual.
//!
//! The modules have no dependency cycles: the modules that settings are made from do not use the settings, and the
//! modules that use the settings are not needed to make them.

mod address;
mod checksum;
pub mod cli;
mod compatibility;
mod config;
mod etcd;
mod existing;
mod files;
pub mod guard;
pub mod init_system;
mod install;
mod installed;
pub mod kept;
pub mod member;
pub mod node;
pub mod paths;
pub mod pki;
pub mod plan;
mod preflight;
pub mod progress;
mod release;
mod release_url;
mod san;
pub mod settings;
pub mod version;
pub mod wal;

mod init;
mod join;

pub use etcd_values::endpoint;
pub use init::init;
pub use join::{Wanted, join};

use std::path::Path;

use anyhow::{Result, ensure};
use time::OffsetDateTime;

use cli::{Command, MemberArgs, VersionArgs};
use endpoint::Endpoint;
use init_system::Systemd;
use kept::Kept;
use node::Node;
use settings::Settings;

/// Carries out a command of the command line.
///
/// # Errors
/// They say what is wrong, and what would be right.
pub async fn run(command: Command) -> Result<()> {
    match command {
        Command::Init(args) => init(&node(args.member, &[])?, args.not_after).await,
        Command::Join(args) => {
            let wanted = Wanted { endpoints: &args.endpoints, cluster_id: args.cluster_id, retry: args.retry };
            join(&node(args.member, &args.endpoints)?, &wanted).await
        }
        Command::Version(args) => {
            print!("{}", show_version(args));
            Ok(())
        }
    }
}

/// Sets up TLS. Must be called before any connection. Further calls change nothing.
pub fn set_up_tls() {
    // An error means only that TLS is already set up.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn node(args: MemberArgs, towards: &[Endpoint]) -> Result<Node> {
    ensure!(rustix::process::geteuid().is_root(), "etcdadm writes below /etc and starts a service; run it as root");
    set_up_tls();
    let root = Path::new("/");
    let settings = Settings::new(args, towards, &Kept::load(root)?)?;
    tracing::info!("this is member {} at {}, etcd {}", settings.name, settings.address, settings.version);
    let init_system = Systemd::new(settings.paths(root).unit());
    Ok(Node::new(root, settings, Box::new(init_system), OffsetDateTime::now_utc()))
}

fn show_version(args: VersionArgs) -> String {
    use etcd_values::DEFAULT_ETCD_VERSION;
    use version::PROGRAM_VERSION;
    let platform = format!("linux/{}", release::go_arch().unwrap_or(std::env::consts::ARCH));
    match (args.output, args.short) {
        (Some(cli::OutputFormat::Json), _) => {
            let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
            let document = serde_json::json!({
                "clientVersion": {"major": major, "minor": minor, "gitVersion": PROGRAM_VERSION, "platform": platform}
            });
            format!("{document:#}\n")
        }
        (None, true) => format!("{PROGRAM_VERSION}\n"),
        (None, false) => format!("etcdadm {PROGRAM_VERSION} ({platform}), installs etcd {DEFAULT_ETCD_VERSION}\n"),
    }
}
