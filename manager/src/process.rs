//! From flags to running controllers, and back down.

use crate::admin::Admin;
use crate::flags::{ControllerName, Flags, LogFormat};
use crate::lease;
use anyhow::Context;
use controller_support::{Shared, Shutdown};
use futures::future::join_all;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// First delay before something that needs the API server is tried again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Runs the process until SIGTERM or SIGINT, or until the lease is lost.
///
/// # Errors
/// If the flags or the kubeconfig cannot be used, the admin address is taken, or the lease is lost.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    log_to_stderr(flags)?;
    // Two threads: controllers wait more than they work, and every thread costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(manage(flags))
}

async fn manage(flags: &Flags) -> anyhow::Result<()> {
    // For libraries that look for a default; ours name it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = client(flags).await?;
    let (stop, shutdown) = Shutdown::new();
    stop_on_signal(stop.clone())?;
    let shared = Shared::new(client.clone(), shutdown.clone());
    let admin = Admin::new(shared.metrics.clone());
    let listener = TcpListener::bind(flags.admin_address)
        .await
        .with_context(|| format!("--admin-address {} cannot be listened on", flags.admin_address))?;
    let server = tokio::spawn(admin.clone().serve(listener, shutdown.clone()));
    let ready = tokio::spawn(tell_when_ready(client.clone(), admin));

    let result = if flags.leader_elect {
        lead(flags, client, &shared, &stop).await
    } else {
        run_controllers(flags, &shared).await;
        Ok(())
    };
    ready.abort();
    let _ = stop.send(true);
    server.await??;
    result
}

/// Waits for the lease, runs the controllers while it is held, and gives it back.
async fn lead(flags: &Flags, client: Client, shared: &Shared, stop: &watch::Sender<bool>) -> anyhow::Result<()> {
    let held = tokio::select! {
        held = acquire(client, &flags.leader_election_namespace) => held,
        () = shared.shutdown.clone().requested() => return Ok(()),
    };
    tracing::info!("holding the lease");
    let controllers = run_controllers(flags, shared);
    tokio::pin!(controllers);
    let lost = tokio::select! {
        () = &mut controllers => false,
        () = held.lost() => true,
    };
    if lost {
        let _ = stop.send(true);
        controllers.await;
        anyhow::bail!("the lease was lost to another manager");
    }
    held.release().await;
    Ok(())
}

async fn acquire(client: Client, namespace: &str) -> lease::Held {
    let mut delay = RETRY.0;
    loop {
        match lease::acquire(client.clone(), namespace).await {
            Ok(held) => return held,
            Err(error) => tracing::warn!(%error, namespace, "no lease, trying again"),
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY.1);
    }
}

async fn run_controllers(flags: &Flags, shared: &Shared) {
    let mut names = flags.controllers.clone();
    names.sort_unstable_by_key(|name| *name as u8);
    names.dedup();
    tracing::info!(controllers = ?names, "starting");
    join_all(names.into_iter().map(|name| run_controller(name, shared))).await;
    tracing::info!("stopped");
}

/// Runs one controller until shutdown; if it cannot start, because the API server or a CRD is not there yet, again.
async fn run_controller(name: ControllerName, shared: &Shared) {
    let mut delay = RETRY.0;
    loop {
        let run = async {
            match name {
                ControllerName::EtcdCluster => etcd_cluster_controller::run(shared.clone()).await,
                ControllerName::EtcdadmBootstrap => etcdadm_bootstrap::run(shared.clone()).await,
                ControllerName::ClusterHooks => cluster_hooks::run(shared.clone()).await,
                ControllerName::ControlPlaneRemediation => cluster_hooks::remediation::run(shared.clone()).await,
            }
        };
        match run.await {
            Ok(()) => return,
            Err(error) => tracing::warn!(controller = ?name, %error, "cannot start yet, trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(RETRY.1),
            () = shared.shutdown.clone().requested() => return,
        }
    }
}

/// Ready once the API server has answered; whether this process holds the lease is no matter of its health.
async fn tell_when_ready(client: Client, admin: Admin) {
    let mut delay = RETRY.0;
    while let Err(error) = client.apiserver_version().await {
        tracing::warn!(%error, "the API server does not answer yet");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY.1);
    }
    admin.set_ready();
}

async fn client(flags: &Flags) -> anyhow::Result<Client> {
    let config = match &flags.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .with_context(|| format!("--kubeconfig {} cannot be read", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig {} cannot be used", file.display()))?
        }
        None => Config::infer().await.context("no kubeconfig: give --kubeconfig, or run in a cluster")?,
    };
    Ok(Client::try_from(config)?)
}

fn stop_on_signal(stop: watch::Sender<bool>) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        let _ = stop.send(true);
    });
    Ok(())
}

fn log_to_stderr(flags: &Flags) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&flags.log_level).with_context(|| format!("--log-level {:?}", flags.log_level))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match flags.log_format {
        LogFormat::Json => logs.json().flatten_event(true).init(),
        LogFormat::Text => logs.init(),
    }
    Ok(())
}
