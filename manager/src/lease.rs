//! The lease, behind three small functions: nothing else knows who implements it.

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Name of the lease.
const NAME: &str = "cluster-api-provider-etcdadm";
/// Seconds after which a lease that nobody has renewed is free.
const DURATION: u64 = 30;
/// Seconds before that at which the holder renews it: every ten seconds.
const GRACE: u64 = 20;

/// A lease that this process holds.
pub struct Held {
    state: watch::Receiver<bool>,
    task: JoinHandle<Result<LeaseManager, LeaseManagerError>>,
}

/// Waits until this process holds the lease.
///
/// # Errors
/// If the lease cannot be read or made.
pub async fn acquire(client: Client, namespace: &str) -> anyhow::Result<Held> {
    let lease = LeaseManagerBuilder::new(client, NAME)
        .with_namespace(namespace)
        .with_duration(DURATION)
        .with_grace(GRACE)
        .build()
        .await?;
    let (mut state, task) = lease.watch().await;
    state.wait_for(|held| *held).await?;
    Ok(Held { state, task })
}

impl Held {
    /// Comes back when the lease is lost to another manager.
    pub async fn lost(&self) {
        let _ = self.state.clone().wait_for(|held| !*held).await;
    }

    /// Gives the lease back, so that the next manager need not wait for it to run out.
    pub async fn release(self) {
        drop(self.state);
        if let Ok(Err(error)) = self.task.await {
            tracing::warn!(%error, "the lease could not be given back; it runs out by itself");
        }
    }
}
