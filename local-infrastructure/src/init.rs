//! `machine-init`: the first process of a machine.
//!
//! It makes the machine's root, waits until the network is connected, enters the root, waits until it is recorded,
//! boots (cloud-init and the enabled units), and then does the work of a first process: it reaps processes, restarts
//! failed services, and ends all processes on SIGTERM.

mod boot;
mod children;
mod mounts;
mod restart;
mod shutdown;
mod units;

use crate::{
    machine::{Layout, apply_partition, configure_inside},
    start::{CONNECTED, ENTERED, RECORDED, read_spec},
};
use anyhow::{Context, Result, bail};
use children::Children;
use rustix::{process::setsid, system::sethostname, thread::CapabilitySet};
use std::{
    fs::File,
    io::BufRead,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::signal::unix::{SignalKind, signal};

/// The environment of everything that runs in a machine.
pub const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/root"),
    ("USER", "root"),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
];

/// Arguments of `machine-init`.
#[derive(Debug, clap::Args)]
pub struct Init {
    /// The machine's directory.
    #[arg(long)]
    pub directory: PathBuf,
    /// The directory of the faults prepared for the machine.
    #[arg(long)]
    pub faults: PathBuf,
}

/// Faults prepared for this machine.
struct Faults {
    no_boot: bool,
    boot_delay: Duration,
}

impl Faults {
    fn read(arguments: &Init) -> Self {
        let seconds = std::fs::read_to_string(arguments.faults.join("boot-delay")).ok();
        let seconds = seconds.and_then(|text| text.trim().parse().ok());
        Self {
            no_boot: arguments.faults.join("no-boot").exists(),
            boot_delay: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or_default(),
        }
    }
}

/// Runs as the machine's first process until the machine is shut down.
///
/// # Errors
/// If the machine cannot be made from its directory.
pub fn run(arguments: &Init) -> Result<()> {
    let started = Instant::now();
    let layout = Layout::at(&arguments.directory);
    let spec = read_spec(&layout)?;
    let faults = Faults::read(arguments);
    // It stays open, so that results can be written to a place that the machine itself cannot reach.
    let directory = File::open(layout.directory()).context("the machine's directory")?;
    // A session without a terminal. This fails only if the process already leads a session.
    let _ = setsid();

    mounts::assemble(&layout, &spec)?;
    wait_for(CONNECTED)?;
    apply_partition(&layout, &spec)?;
    mounts::enter(&layout)?;
    sethostname(spec.host_name.as_bytes()).context("the host name")?;
    configure_inside(&spec)?;
    rustix::io::write(rustix::stdio::stdin(), ENTERED.as_bytes()).context("answering `machine-start`")?;
    wait_for(RECORDED)?;
    // The clock and the kernel are this computer's, not the machine's.
    for capability in [CapabilitySet::SYS_TIME, CapabilitySet::SYS_MODULE] {
        rustix::thread::remove_capability_from_bounding_set(capability).context("giving up a capability")?;
    }

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(live(started, &faults, &directory))
}

/// Waits until `machine-start` says this.
fn wait_for(expected: &str) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("waiting for `machine-start`")?;
    if line != expected {
        bail!("`machine-start` ended before it said {:?}", expected.trim());
    }
    Ok(())
}

async fn live(started: Instant, faults: &Faults, directory: &File) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut child_ended = signal(SignalKind::child())?;
    let children = Children::default();

    let life = async {
        if faults.no_boot {
            println!("This machine does not boot: a fault was prepared for it.");
            return std::future::pending().await;
        }
        if !faults.boot_delay.is_zero() {
            println!("Waiting {:?} before booting: a fault was prepared for this machine.", faults.boot_delay);
            tokio::time::sleep(faults.boot_delay).await;
        }
        tokio::join!(
            boot::run(&children, started, directory),
            units::start_enabled(&children),
            restart::watch(&children)
        );
    };
    let reaping = async {
        loop {
            children.reap();
            child_ended.recv().await;
        }
    };
    tokio::select! {
        () = life => {}
        () = reaping => {}
        _ = terminate.recv() => {}
    }
    shutdown::end_all(&children, &mut child_ended).await;
    Ok(())
}
