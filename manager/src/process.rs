//! Starts everything that the flags ask for, and stops it gracefully.

use crate::admin::Admin;
use crate::diagnostics::{Diagnostics, unknown_groups, unknown_suites};
use crate::flags::{ControllerName, Flags};
use crate::lease::{Candidate, Times};
use crate::limits::raise_open_files;
use crate::logs::{self, LogLevel};
use anyhow::Context;
use controller_support::{Scope, Shared, Shutdown};
use futures::future::join_all;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The first and the longest delay before something that needs the API server is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Runs the process until SIGTERM or SIGINT, or until the lease is lost.
///
/// # Errors
/// If the flags or the kubeconfig cannot be used, an address cannot be bound, or the lease is lost.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let times = flags.lease_times()?;
    let log_level = logs::start(flags)?;
    for (flag, why) in flags.without_effect() {
        tracing::warn!(flag = format!("--{flag}"), why, "this flag has no effect");
    }
    for suite in unknown_suites(&flags.tls().suites) {
        tracing::warn!(suite, "this program does not have this cipher suite of --tls-cipher-suites: it is left out");
    }
    for group in unknown_groups(&flags.tls().groups) {
        tracing::warn!(group, "this program does not have this group of --tls-curve-preferences: it is left out");
    }
    raise_open_files();
    // Two threads: controllers wait more than they work, and every thread costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(manage(flags, times, log_level));
    // Whatever still runs ends with the process: after the loss of the lease, nothing may be waited for.
    runtime.shutdown_background();
    result
}

async fn manage(flags: &Flags, times: Times, log_level: LogLevel) -> anyhow::Result<()> {
    // For libraries that use the default provider. Our own code names its provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (stop, shutdown) = Shutdown::new();
    let shared = Shared::connect(flags.scope(), config(flags).await?, shutdown.clone())?;
    let client = shared.client.clone();
    stop_on_signal(stop.clone())?;
    let admin = Admin::new(shared.metrics.clone());
    let mut servers = Vec::new();
    for (flag, address, paths) in flags.plain() {
        servers.push(tokio::spawn(admin.clone().serve(bind(flag, address).await?, paths, shutdown.clone())));
    }
    if let Some(address) = flags.secure() {
        let certificates = flags.diagnostics_cert_dir.as_deref();
        let shown = (shared.metrics.clone(), log_level);
        let server = Diagnostics::new(client.clone(), shown, &flags.tls(), certificates)?;
        servers.push(tokio::spawn(server.serve(bind("--diagnostics-address", address).await?, shutdown.clone())));
    }
    let ready = tokio::spawn(tell_when_ready(client.clone(), admin));

    if flags.leader_elect {
        lead(flags, times, client, &shared).await?;
    } else {
        shared.metrics.lease_held.set(1);
        run_controllers(flags, &shared).await;
    }
    ready.abort();
    let _ = stop.send(true);
    for server in servers {
        server.await??;
    }
    Ok(())
}

async fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    listen(address).await.with_context(|| format!("{flag} {address} cannot be bound"))
}

/// Listens on an address. `[::]` means IPv4 and IPv6, and IPv4 alone where the kernel has no IPv6.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        result => result,
    }
}

/// Waits for the lease, runs the controllers while it is held, and gives it back.
///
/// If the lease is lost, reconciles are dropped halfway: another manager may act from now on.
async fn lead(flags: &Flags, times: Times, client: Client, shared: &Shared) -> anyhow::Result<()> {
    let candidate = Candidate::new(client, &flags.leader_election_namespace, times);
    let mut held = tokio::select! {
        held = candidate.acquire() => held,
        () = shared.shutdown.clone().requested() => return Ok(()),
    };
    tracing::info!("holding the lease");
    shared.metrics.lease_held.set(1);
    tokio::select! {
        biased;
        why = held.keep() => anyhow::bail!("the lease is lost: {why}"),
        () = run_controllers(flags, shared) => {}
    }
    shared.metrics.lease_held.set(0);
    held.release().await;
    Ok(())
}

async fn run_controllers(flags: &Flags, shared: &Shared) {
    let mut names = flags.controllers.clone();
    names.sort_unstable_by_key(|name| *name as u8);
    names.dedup();
    let Scope { namespace, watch_filter } = &shared.scope;
    tracing::info!(controllers = ?names, namespace, watch_filter, "starting");
    let controllers = names.into_iter().map(async |name| {
        run_controller(name, &Shared { concurrency: flags.concurrency(name), ..shared.clone() }).await;
    });
    join_all(controllers).await;
    tracing::info!("stopped");
}

/// Runs one controller until shutdown. It is started again if it cannot start yet, because the API server does not
/// answer or a CRD does not exist, and if it ends, because a version of a kind is no longer served.
async fn run_controller(name: ControllerName, shared: &Shared) {
    let mut delay = RETRY.0;
    loop {
        match run_until_it_ends(name, shared).await {
            Ok(()) if shared.shutdown.is_requested() => return,
            Ok(()) => tracing::info!(controller = ?name, "starting again"),
            Err(error) => tracing::warn!(controller = ?name, %error, "cannot start yet, trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(RETRY.1),
            () = shared.shutdown.clone().requested() => return,
        }
    }
}

async fn run_until_it_ends(name: ControllerName, shared: &Shared) -> controller_support::Result<()> {
    // Bootstrap data from two providers would do harm. The other controllers run nevertheless: existing members need
    // them.
    if name == ControllerName::EtcdadmBootstrap {
        controller_support::foreign::refuse(&shared.kinds).await?;
    }
    match name {
        ControllerName::EtcdCluster => etcd_cluster_controller::run(shared.clone()).await,
        ControllerName::EtcdadmBootstrap => etcdadm_bootstrap::run(shared.clone()).await,
        ControllerName::ClusterHooks => cluster_hooks::run(shared.clone()).await,
        ControllerName::ControlPlaneRemediation => cluster_hooks::remediation::run(shared.clone()).await,
    }
}

/// Makes the process ready once the API server has answered. A process that waits for the lease is ready too.
async fn tell_when_ready(client: Client, admin: Admin) {
    let mut delay = RETRY.0;
    while let Err(error) = client.apiserver_version().await {
        tracing::warn!(%error, "the API server does not answer yet");
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(RETRY.1);
    }
    admin.set_ready();
}

async fn config(flags: &Flags) -> anyhow::Result<Config> {
    Ok(match &flags.kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .with_context(|| format!("--kubeconfig {} cannot be read", file.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("--kubeconfig {} cannot be used", file.display()))?
        }
        None => Config::infer().await.context("no kubeconfig: give --kubeconfig, or run in a cluster")?,
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn the_address_of_the_deployment_is_reached_over_ipv4_too() {
        let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let taken = listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)).await;
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
