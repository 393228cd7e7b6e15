//! Who listens where. A world has the ports to itself, so they are always the same; those of a second plane in it too.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::until::until;

/// Where the plane's own API server finds webhooks.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// How far the ports of a plane beside another one are from the usual ones.
const BESIDE: u16 = 20_000;

/// Ports of one plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub etcd: u16,
    pub etcd_peer: u16,
    pub apiserver: u16,
    pub controller_manager: u16,
    offset: u16,
}

/// Ports of one Cluster API manager.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manager {
    pub webhook: u16,
    pub health: u16,
    pub diagnostics: u16,
}

impl Ports {
    /// The usual ones, or those of a plane beside another one.
    pub(super) const fn of(beside: bool) -> Self {
        let offset = if beside { BESIDE } else { 0 };
        Self {
            etcd: 2379 + offset,
            etcd_peer: 2380 + offset,
            apiserver: 6443 + offset,
            controller_manager: 10257 + offset,
            offset,
        }
    }

    /// The `index`-th manager's: Cluster API's usual numbers, a hundred apart.
    pub(super) const fn manager(self, index: u16) -> Manager {
        let first = self.offset + 100 * index;
        Manager { webhook: 9443 + first, health: 9440 + first, diagnostics: 8443 + first }
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
