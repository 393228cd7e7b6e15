//! Lets the kernel redirect what this world sends to members.

use crate::process::output;
use crate::world::BRIDGE;
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::process::Command;

/// An address of this world that no machine gets. What is sent from it is not redirected.
pub(super) const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// A rule that stays until this is dropped.
pub(super) struct Redirect {
    port: u16,
    machines: String,
}

impl Redirect {
    /// Redirects connections from this world to port 2379 of any machine of the network `machines` to `port` of this
    /// world.
    ///
    /// # Errors
    /// When `ip` or `iptables` fails. The error has its output.
    pub(super) fn to(port: u16, machines: String) -> Result<Self> {
        let redirect = Self { port, machines };
        let address = format!("{OWN_ADDRESS}/32");
        output(Command::new("ip").args(["address", "replace", &address, "dev", BRIDGE])).context("an own address")?;
        redirect.iptables("--append").context("redirect connections to members")?;
        Ok(redirect)
    }

    fn iptables(&self, action: &str) -> Result<()> {
        let (machines, own) = (&self.machines, OWN_ADDRESS.to_string());
        let (member, port) = (api::names::CLIENT_PORT.to_string(), self.port.to_string());
        output(
            Command::new("iptables")
                .args(["--wait", "--table", "nat", action, "OUTPUT", "--protocol", "tcp"])
                .args(["!", "--source", &own, "--destination", machines, "--dport", &member])
                .args(["--jump", "REDIRECT", "--to-ports", &port]),
        )?;
        Ok(())
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        if let Err(error) = self.iptables("--delete") {
            eprintln!("connections to members are still redirected: {error:#}");
        }
    }
}
