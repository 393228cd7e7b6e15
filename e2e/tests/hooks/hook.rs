//! A hook that can be killed like a process: all of it ends.

use anyhow::{Context, Result};
use controller_support::{Shared, Shutdown};
use kube::{Client, Config};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A hook with threads of its own. Dropping it kills it at any point, between any two requests. This ends its watches
/// too, which nothing else would end: on a shared plane, they would send requests in the name of the next hook.
pub(crate) struct Hook {
    task: JoinHandle<()>,
    runtime: Option<Runtime>,
    // Dropping this first would shut the hook down gracefully.
    _stop: watch::Sender<bool>,
}

impl Hook {
    /// A hook that runs as the user of the configuration.
    pub(crate) fn start(config: Config) -> Result<Self> {
        let runtime = Builder::new_multi_thread().enable_all().build().context("start tokio")?;
        let (stop, shutdown) = Shutdown::new();
        let task = runtime.spawn(async move {
            if let Err(error) = run(config, shutdown).await {
                eprintln!("the hook has ended: {error:#}");
            }
        });
        Ok(Self { task, runtime: Some(runtime), _stop: stop })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(runtime) = self.runtime.take() {
            // Other tasks go on meanwhile, so this does not wait for it.
            runtime.shutdown_background();
        }
    }
}

/// The client is made here so that its connections end with the hook.
async fn run(config: Config, shutdown: Shutdown) -> Result<()> {
    let client = Client::try_from(config)?;
    Ok(cluster_hooks::run(Shared::new(client, shutdown)).await?)
}
