//! Sets up a new world.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, mount};

use super::{ADDRESS, BRIDGE, PREFIX_LENGTH, STATE, has_ipv6};
use local_infrastructure::address::{IpFamily, PREFIX_LENGTH_OF_IPV6};

/// A `/run` of the world's own, in memory and writable for root of the world.
pub(super) fn mounts() -> Result<()> {
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), c"mode=0755").context("mount a /run for the world")?;
    // `ip netns` keeps its names in the first, iptables its lock in the second.
    for directory in ["/run/netns", "/run/lock", STATE] {
        fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
    }
    Ok(())
}

/// A loopback interface that is up, and the bridge for machines.
pub(super) fn network() -> Result<()> {
    let of_ipv6 = if has_ipv6() {
        let address = IpFamily::IPv6.address(ADDRESS.parse()?);
        format!("address add {address}/{PREFIX_LENGTH_OF_IPV6} dev {BRIDGE} nodad\n")
    } else {
        String::new()
    };
    // forward_delay 0: a port carries traffic as soon as it is attached.
    let commands = format!(
        "link set lo up\n\
         link add {BRIDGE} type bridge forward_delay 0\n\
         address add {ADDRESS}/{PREFIX_LENGTH} dev {BRIDGE}\n\
         {of_ipv6}\
         link set {BRIDGE} up\n"
    );
    let mut ip =
        Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("run ip (package iproute2)")?;
    ip.stdin.take().context("ip's standard input is piped")?.write_all(commands.as_bytes()).context("write to ip")?;
    let status = ip.wait().context("wait for ip")?;
    if !status.success() {
        bail!("ip could not set up the world's network: {status}");
    }
    Ok(())
}
