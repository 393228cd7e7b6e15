//! The ports on which processes listen. A world has all ports to itself, so a plane's ports are always the same, and so
//! are those of a second plane in it.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::until::until;

/// The host at which the plane's own API server finds webhooks.
pub(super) const LOOPBACK: &str = "127.0.0.1";

/// How far the ports of a plane beside another one are above the usual ones.
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
    /// The usual ports, or those of a plane beside another one.
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

    /// The ports of manager `index`: Cluster API's usual ones, plus a hundred times the index.
    pub(super) const fn manager(self, index: u16) -> Manager {
        let first = self.offset + 100 * index;
        Manager { webhook: 9443 + first, health: 9440 + first, diagnostics: 8443 + first }
    }
}

/// Waits until all of `ports` are free, because an earlier plane of this world may still be ending.
pub(super) async fn wait_until_free(ports: &[u16]) -> Result<()> {
    until("the ports of an earlier plane are free", Duration::from_secs(10), async || {
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).with_context(|| format!("port {port}"))?;
        }
        Ok(Some(()))
    })
    .await
}
