//! The process that runs the controllers.

use crate::{address::Subnet, cluster, context::Settings, controller, events::Events, machine::Machines};
use anyhow::{Context, Result};
use api::names;
use clap::ValueEnum;
use controller_support::{Kinds, Shared, Shutdown, kinds::CLUSTER_API_CONTRACTS};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    discovery::ApiResource,
};
use std::{path::PathBuf, sync::Arc, time::Duration};
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

/// How long to wait before Cluster API is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Runs the controllers until SIGTERM or SIGINT. Machines go on running.
///
/// # Errors
/// If the management cluster cannot be spoken to at all.
pub async fn run(arguments: Run) -> Result<()> {
    log(arguments.log_format);
    let settings = Arc::new(Settings {
        machines: Machines::open(std::path::absolute(&arguments.state_dir)?),
        image_dir: arguments.image_dir.canonicalize().context("the image; `local-infrastructure image` makes one")?,
        bridge: arguments.bridge,
        subnet: arguments.subnet,
        program: std::env::current_exe().context("the path of this program")?,
    });
    let client = client(&arguments.kubeconfig).await?;
    let (stop, shutdown) = Shutdown::new();
    let shared = Shared::new(client, shutdown);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let controllers = async {
        // They end before shutdown if a version of Cluster API's kinds is no longer served.
        while !shared.shutdown.is_requested() {
            let machines = shared.caches.watch(&served(&shared.kinds, "Machine").await, None);
            let clusters = shared.caches.watch(&served(&shared.kinds, "Cluster").await, None);
            let (local_events, changes) = Events::start().context("inotify")?;
            tracing::info!(subnet = %settings.subnet, bridge = settings.bridge, "running");
            tokio::join!(
                controller::run(&shared, settings.clone(), (machines, clusters.clone()), local_events, changes),
                cluster::run(&shared, settings.clone(), clusters)
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
    // Nobody listens if the controllers have not begun: then there is nothing to finish.
    let _ = stop.send(true);
    tokio::time::timeout(Duration::from_secs(15), controllers).await.unwrap_or(Ok(()))
}

/// The version of one of Cluster API's kinds, as soon as it is served.
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

async fn client(kubeconfig: &std::path::Path) -> Result<Client> {
    // Fails only if it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(controller_support::client::client(config)?)
}

fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube=warn"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
