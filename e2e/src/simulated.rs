//! Simulated machines and members: thousands of them in one process, for tests that would need too many real ones.
//!
//! The program `simulated-infrastructure` runs in place of `local-infrastructure`. Its controllers are the same, so
//! LocalClusters and LocalMachines are handled in the same way; only the machines differ. A simulated machine reads its
//! bootstrap data like a real one, issues itself a certificate from the CA in there, and serves TLS at its own address.
//! It answers this project's requests as etcd would. Nothing is stored, and members do not talk to each other: their
//! consensus is a state in the memory of the process.
//!
//! `docs/testbed.md` says what such a member does not do.

mod addresses;
mod answers;
mod bootstrap_data;
mod ensemble;
mod fleet;
mod frozen;
mod gateway;
mod grpc;
mod metrics;
mod server;

pub use fleet::Fleet;
pub use frozen::Frozen;

use crate::process::output;
use anyhow::{Context, Result};
use local_infrastructure::address::Subnet;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The version of etcd that members report.
pub const VERSION: &str = "3.6.16";
/// The network of simulated machines, in addition to that of the bridge.
pub const SUBNET: &str = "10.78.0.0/16";
/// How often the list of frozen machines is read.
const LOOKS: Duration = Duration::from_millis(200);

/// Arguments of the program.
#[derive(Debug, clap::Parser)]
#[command(name = "simulated-infrastructure")]
pub struct Arguments {
    /// How to reach the management cluster.
    #[arg(long)]
    pub kubeconfig: PathBuf,
    /// Where others say which machines are frozen.
    #[arg(long)]
    pub state_dir: PathBuf,
    /// The network that machines have their addresses from.
    #[arg(long, default_value = SUBNET)]
    pub subnet: Subnet,
}

/// Runs the controllers, the machines and their members until SIGTERM. The machines end with it.
///
/// # Errors
/// If the management cluster cannot be reached, or this world's network cannot be changed.
pub async fn run(arguments: Arguments) -> Result<()> {
    let Arguments { kubeconfig, state_dir, subnet } = arguments;
    local_infrastructure::run::log(local_infrastructure::run::LogFormat::Text);
    open_many_files()?;
    serve_at(&subnet)?;
    let fleet = Fleet::new(subnet);
    let frozen = Frozen::at(&state_dir)?;
    tokio::spawn({
        let fleet = fleet.clone();
        async move {
            loop {
                match frozen.read() {
                    Ok(frozen) => fleet.freeze_only(&frozen),
                    Err(error) => tracing::error!(error = format!("{error:#}"), "which machines are frozen"),
                }
                tokio::time::sleep(LOOKS).await;
            }
        }
    });
    local_infrastructure::run::serve(&kubeconfig, || Ok((Arc::new(fleet.clone()), fleet.changes()))).await
}

/// Lets this world answer at every address of a network, without an interface address for each.
///
/// # Errors
/// When `ip` fails. The error has its output.
pub fn serve_at(subnet: &Subnet) -> Result<()> {
    let subnet = subnet.to_string();
    output(Command::new("ip").args(["route", "replace", "local", &subnet, "dev", "lo"]))
        .context("serve at every address of the machines' network")?;
    Ok(())
}

/// Each member needs a file descriptor for itself, and one for each connection.
fn open_many_files() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raise the limit of file descriptors")
}
