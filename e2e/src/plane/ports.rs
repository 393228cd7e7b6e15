//! Who listens where. A world has the ports to itself, so they are always the same.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::until::until;

pub(super) const ETCD: u16 = 2379;
pub(super) const ETCD_PEER: u16 = 2380;
pub(super) const APISERVER: u16 = 6443;
pub(super) const CONTROLLER_MANAGER: u16 = 10257;

/// Ports of one Cluster API manager.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manager {
    pub webhook: u16,
    pub health: u16,
    pub diagnostics: u16,
}

impl Manager {
    /// The `index`-th manager's: Cluster API's usual numbers, a hundred apart.
    pub(super) const fn number(index: u16) -> Self {
        Self { webhook: 9443 + 100 * index, health: 9440 + 100 * index, diagnostics: 8443 + 100 * index }
    }
}

/// Waits until nobody listens on any of `ports`: an earlier plane of this world may be about to end.
pub(super) async fn wait_until_free(ports: &[u16]) -> Result<()> {
    until("the ports of an earlier plane are free", Duration::from_secs(10), async || {
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).with_context(|| format!("port {port}"))?;
        }
        Ok(Some(()))
    })
    .await
}
