//! Machines and members that are simulated: thousands of them in one process, for what real ones are too heavy for.
//!
//! The program `simulated-infrastructure` takes the place of `local-infrastructure`. Its controllers are the same, so
//! LocalClusters and LocalMachines go the same way; only what a machine is differs. It reads its bootstrap data like a real
//! one, issues itself a certificate from the CA in there, and serves TLS on an address of its own. There it answers what etcd
//! answers to the questions of this project. Nothing is stored, and members do not speak to each other: what they agree on is
//! a state in the memory of the process.
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

/// Version of the etcd that members are like.
pub const VERSION: &str = "3.6.16";
/// The network of simulated machines, beside that of the bridge.
pub const SUBNET: &str = "10.78.0.0/16";
/// How often frozen machines are looked up.
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

/// Runs the controllers, the machines and their members until SIGTERM. Machines end with it.
///
/// # Errors
/// If the management cluster cannot be spoken to, or this world's network cannot be changed.
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

/// Has this world answer at every address of a network, without an interface address for each.
///
/// # Errors
/// When `ip` cannot do it; the error has its words.
pub fn serve_at(subnet: &Subnet) -> Result<()> {
    let subnet = subnet.to_string();
    output(Command::new("ip").args(["route", "replace", "local", &subnet, "dev", "lo"]))
        .context("serve at every address of the machines' network")?;
    Ok(())
}

/// Each member has a file descriptor for itself, and one for each connection.
fn open_many_files() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("raise the limit of file descriptors")
}
