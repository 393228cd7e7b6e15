//! The cable and the address of a machine, and the cuts of its network.

use super::{Error, Layout, MachineSpec, Result, check, failed, files, on, processes, write_atomic};
use crate::address::{IpFamily, PREFIX_LENGTH_OF_IPV6};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    io::{self, Write},
    net::Ipv4Addr,
    path::Path,
    process::{Command, Stdio},
};

/// Plugs the machine whose first process is `pid` into its bridge. Called in the world's network namespace.
pub(crate) fn connect(spec: &MachineSpec, pid: u32) -> Result<()> {
    let (cable, hardware_address, bridge) = (spec.cable(), spec.hardware_address(), &spec.bridge);
    feed(
        Command::new("ip").args(["-batch", "-"]),
        &format!(
            "link add {cable} type veth peer name eth0 address {hardware_address} netns {pid}\n\
             link set {cable} master {bridge}{} up\n",
            without_link_local()
        ),
    )
}

/// Removes what is left of a cable. Called in the world's network namespace. The kernel also removes the cable after
/// the machine's last process is gone, but some time later.
pub(super) fn disconnect(spec: &MachineSpec) -> Result<()> {
    let cable = spec.cable();
    let output = Command::new("ip")
        .args(["link", "delete", &cable])
        .output()
        .map_err(|error| failed("ip link delete", &error.to_string()))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || says_it_is_gone(&message) {
        return Ok(());
    }
    Err(failed(&format!("ip link delete {cable}"), &message))
}

/// Whether `ip` failed because the link does not exist. `ip` finds the link first, and then asks the kernel to delete
/// it. The kernel may remove the link itself before either of these.
fn says_it_is_gone(message: &str) -> bool {
    message.contains("Cannot find device") || message.contains("No such device")
}

/// Sets the machine's address. Called in the machine's network namespace after it has been connected.
pub(crate) fn configure_inside(spec: &MachineSpec) -> Result<()> {
    let (address, gateway) = (spec.ip(), spec.ip_family.address(spec.gateway));
    let (family, address) = match spec.ip_family {
        IpFamily::IPv4 => ("-4", format!("{address}/{} broadcast +", spec.prefix_length)),
        // No other machine can have the address, so there is no need to detect duplicates, which takes a second.
        IpFamily::IPv6 => ("-6", format!("{address}/{PREFIX_LENGTH_OF_IPV6} nodad")),
    };
    feed(
        Command::new("ip").args([family, "-batch", "-"]),
        &format!(
            "link set lo up\n\
             addr add {address} dev eth0\n\
             link set eth0{} up\n\
             route add default via {gateway} dev eth0\n",
            without_link_local()
        ),
    )
}

/// What keeps an interface from taking a link-local IPv6 address. A kernel without IPv6 refuses the option.
fn without_link_local() -> &'static str {
    if Path::new("/proc/sys/net/ipv6").exists() { " addrgenmode none" } else { "" }
}

/// One way of a machine's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// What others send to it.
    In,
    /// What it sends.
    Out,
}

/// What a machine is cut off from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partition {
    everything: bool,
    /// One way of everything.
    #[serde(default)]
    one_way: Option<Way>,
    /// So many of a hundred packets that come in are lost.
    #[serde(default)]
    lost_percent: u8,
    peers: BTreeSet<Ipv4Addr>,
}

impl Partition {
    pub(super) fn none() -> Self {
        Self::default()
    }

    pub(super) fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    pub(super) fn of(way: Way) -> Self {
        Self { one_way: Some(way), ..Self::default() }
    }

    /// # Errors
    /// When it is not a percentage.
    pub(super) fn losing(lost_percent: u8) -> Result<Self> {
        if lost_percent > 100 {
            return Err(failed("losing packets", &format!("{lost_percent} is not between 0 and 100")));
        }
        Ok(Self { lost_percent, ..Self::default() })
    }

    pub(super) fn and(mut self, peer: Ipv4Addr) -> Self {
        self.peers.insert(peer);
        self
    }

    pub(super) fn read(layout: &Layout) -> Result<Self> {
        Ok(files::read_json(&layout.partition())?.unwrap_or_default())
    }

    /// The whole `raw` table: it is before connection tracking, and nothing that runs in a machine uses it.
    fn rules(&self, family: IpFamily) -> String {
        let mut rules = String::from("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n");
        if self.everything || self.one_way == Some(Way::In) {
            rules.push_str("-A PREROUTING ! -i lo -j DROP\n");
        }
        if self.everything || self.one_way == Some(Way::Out) {
            rules.push_str("-A OUTPUT ! -o lo -j DROP\n");
        }
        if self.lost_percent > 0 {
            let probability = f64::from(self.lost_percent) / 100.0;
            let matches = format!("-m statistic --mode random --probability {probability:.2}");
            rules.push_str(&format!("-A PREROUTING ! -i lo {matches} -j DROP\n"));
        }
        for peer in self.peers.iter().map(|peer| family.address(*peer)) {
            rules.push_str(&format!("-A PREROUTING -s {peer} -j DROP\n-A OUTPUT -d {peer} -j DROP\n"));
        }
        rules + "COMMIT\n"
    }
}

/// Called in the machine's network namespace when it starts: a cut of its network outlives a reboot.
pub(crate) fn apply_partition(layout: &Layout, spec: &MachineSpec) -> Result<()> {
    let partition = Partition::read(layout)?;
    if partition == Partition::none() {
        return Ok(());
    }
    feed(&mut Command::new(restores(spec.ip_family)), &partition.rules(spec.ip_family))
}

/// The program that sets rules for this IP family.
fn restores(family: IpFamily) -> &'static str {
    match family {
        IpFamily::IPv4 => "iptables-restore",
        IpFamily::IPv6 => "ip6tables-restore",
    }
}

/// Records what a machine is cut off from, and applies it if the machine is running.
pub(super) fn partition(layout: &Layout, spec: &MachineSpec, partition: &Partition) -> Result<()> {
    let json = serde_json::to_vec(partition).map_err(io::Error::from).map_err(on(&layout.partition()))?;
    write_atomic(&layout.partition(), &json)?;
    match processes::enter(layout, &["--net"]) {
        Err(Error::NotRunning(_)) => Ok(()),
        command => feed(command?.arg(restores(spec.ip_family)), &partition.rules(spec.ip_family)),
    }
}

/// Runs a program with this input.
fn feed(command: &mut Command, input: &str) -> Result<()> {
    let name = format!("{command:?}").replace('"', "");
    let mut run = || -> io::Result<_> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    };
    check(&name, run())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_that_the_kernel_removes_first_is_gone_too() {
        assert!(says_it_is_gone("Cannot find device \"cape-0a4d0012\"\n"));
        assert!(says_it_is_gone("RTNETLINK answers: No such device\n"));
        assert!(!says_it_is_gone("RTNETLINK answers: Operation not permitted\n"));
    }

    #[test]
    fn a_partition_drops_both_directions_and_never_the_loopback() {
        let rules = Partition::none().and(Ipv4Addr::new(10, 77, 0, 11)).rules(IpFamily::IPv4);
        assert!(rules.contains("-A PREROUTING -s 10.77.0.11 -j DROP\n-A OUTPUT -d 10.77.0.11 -j DROP\n"), "{rules}");
        let rules = Partition::none().and(Ipv4Addr::new(10, 77, 0, 11)).rules(IpFamily::IPv6);
        assert!(rules.contains("-A OUTPUT -d fd00:77::a4d:b -j DROP\n"), "{rules}");
        let rules = Partition::everything().rules(IpFamily::IPv4);
        assert!(rules.contains("-A PREROUTING ! -i lo -j DROP\n-A OUTPUT ! -o lo -j DROP\n"), "{rules}");
        assert!(!Partition::none().rules(IpFamily::IPv4).contains("DROP"));
        let rules = Partition::of(Way::In).rules(IpFamily::IPv4);
        assert!(rules.contains("-A PREROUTING ! -i lo -j DROP\n") && !rules.contains("-A OUTPUT"), "{rules}");
        let rules = Partition::of(Way::Out).rules(IpFamily::IPv4);
        assert!(rules.contains("-A OUTPUT ! -o lo -j DROP\n") && !rules.contains("-A PREROUTING"), "{rules}");
        let rules = Partition::losing(30).unwrap().rules(IpFamily::IPv4);
        assert!(rules.contains("-A PREROUTING ! -i lo -m statistic --mode random --probability 0.30 -j DROP\n"));
        assert!(Partition::losing(101).is_err());
    }
}
