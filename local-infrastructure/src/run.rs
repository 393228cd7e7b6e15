//! The process that runs the controllers.

use crate::{
    address::Subnet,
    cluster, controller,
    events::{Events, Key},
    hardware::{Hardware, Namespaces},
    machine::Machines,
};
use anyhow::{Context, Result};
use api::names;
use clap::ValueEnum;
use controller_support::{Kinds, Scope, Shared, Shutdown, kinds::CLUSTER_API_CONTRACTS};
use futures::Stream;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
    discovery::ApiResource,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// How to reach the management cluster.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: PathBuf,
    /// Where machines' disks and state are kept. On another file system than `/usr`, `/etc` and `/var`, such as a tmpfs.
    #[arg(long, env = "LOCAL_INFRASTRUCTURE_STATE_DIR", default_value = "/run/local-infrastructure")]
    pub state_dir: PathBuf,
    /// The image that machines start from, made by `image`.
    #[arg(long)]
    pub image_dir: PathBuf,
    /// The bridge that machines are plugged into.
    #[arg(long, default_value = "cape0")]
    pub bridge: String,
    /// The bridge's network. The bridge has its first address.
    #[arg(long, default_value = "10.77.0.0/16")]
    pub subnet: Subnet,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object each.
    Json,
}

/// Pause before the next check whether Cluster API is served.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Runs the controllers until SIGTERM or SIGINT. Machines continue to run.
///
/// # Errors
/// If the management cluster cannot be reached at all.
pub async fn run(arguments: Run) -> Result<()> {
    log(arguments.log_format);
    let machines = Machines::open(std::path::absolute(&arguments.state_dir)?);
    let image_dir = arguments.image_dir.canonicalize().context("the image; `local-infrastructure image` makes one")?;
    let program = std::env::current_exe().context("the path of this program")?;
    let Run { bridge, subnet, .. } = arguments;
    tracing::info!(%subnet, bridge, "running");
    serve(&arguments.kubeconfig, || {
        let (events, changes) = Events::start().context("inotify")?;
        let (machines, image_dir, program) = (machines.clone(), image_dir.clone(), program.clone());
        Ok((Arc::new(Namespaces { machines, image_dir, bridge: bridge.clone(), subnet, program, events }), changes))
    })
    .await
}

/// Runs the controllers with machines of any kind until SIGTERM or SIGINT. `begin` returns the machines, and a stream
/// of those that have changed. It is called again when the controllers have to be restarted.
///
/// # Errors
/// If the management cluster cannot be reached at all, or `begin` fails.
pub async fn serve<H, S>(kubeconfig: &Path, begin: impl Fn() -> Result<(Arc<H>, S)>) -> Result<()>
where
    H: Hardware,
    S: Stream<Item = Key> + Send + 'static,
{
    let (stop, shutdown) = Shutdown::new();
    let shared = Shared::connect(Scope::default(), config(kubeconfig).await?, shutdown)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let controllers = async {
        // They end before shutdown if a version of Cluster API's kinds is no longer served.
        while !shared.shutdown.is_requested() {
            let machines = shared.caches.watch(&served(&shared.kinds, "Machine").await, None);
            let clusters = shared.caches.watch(&served(&shared.kinds, "Cluster").await, None);
            let (hardware, changes) = begin()?;
            tokio::join!(
                controller::run(&shared, hardware.clone(), (machines, clusters.clone()), changes),
                cluster::run(&shared, hardware, clusters)
            );
        }
        anyhow::Ok(())
    };
    tokio::pin!(controllers);
    tokio::select! {
        result = &mut controllers => return result,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping; machines go on");
    // If the controllers have not begun, nobody receives this, and there is nothing to finish.
    let _ = stop.send(true);
    tokio::time::timeout(Duration::from_secs(15), controllers).await.unwrap_or(Ok(()))
}

/// The version of one of Cluster API's kinds. Waits until it is served.
async fn served(kinds: &Kinds, kind: &str) -> ApiResource {
    let mut said = String::new();
    loop {
        match kinds.find(names::CLUSTER_GROUP, kind, CLUSTER_API_CONTRACTS).await {
            Ok(found) => return found,
            Err(error) if error.to_string() == said => {}
            Err(error) => {
                tracing::warn!(%error, "waiting for Cluster API");
                said = error.to_string();
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    // Fails only if it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("the kubeconfig")?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

/// Starts the log on standard error.
pub fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube=warn"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
