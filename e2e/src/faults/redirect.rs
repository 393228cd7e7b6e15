//! Lets the kernel redirect what this world sends to members.

use crate::packet_filter::FilterRule;
use crate::process::output;
use crate::world::BRIDGE;
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::process::Command;

/// An address of this world that no machine gets. What is sent from it is not redirected.
pub(super) const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// Redirects connections from this world to port 2379 of any machine of the network `machines` to `port` of this world,
/// until the rule is dropped.
///
/// # Errors
/// When `ip` or `iptables` fails. The error has its output.
pub(super) fn redirect(port: u16, machines: &str) -> Result<FilterRule> {
    let address = format!("{OWN_ADDRESS}/32");
    output(Command::new("ip").args(["address", "replace", &address, "dev", BRIDGE])).context("an own address")?;
    let (member, port, own) = (api::names::CLIENT_PORT.to_string(), port.to_string(), OWN_ADDRESS.to_string());
    let from = ["--protocol", "tcp", "!", "--source", &own];
    let to = ["--destination", machines, "--dport", &member, "--jump", "REDIRECT", "--to-ports", &port];
    FilterRule::append("nat", "OUTPUT", &[&from[..], &to].concat()).context("redirect connections to members")
}
