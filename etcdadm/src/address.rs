//! Which of this machine's addresses the member announces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use anyhow::{Context, Result, bail};

use crate::endpoint::{Endpoint, Host};

/// Chooses the member's own address: the requested one, else the source address towards the cluster, else towards the
/// default route, else the machine's first address. Works without any route.
///
/// # Errors
/// When the requested or kept address is not an address of this machine, or the machine has no address that others can
/// reach.
pub fn member_address(asked: Option<IpAddr>, towards: &[Endpoint]) -> Result<IpAddr> {
    match asked {
        Some(ip) if !ip.is_unspecified() => {
            // Binding is the only test that also finds addresses that no interface lists, such as 127.0.0.2.
            UdpSocket::bind((ip, 0)).with_context(|| {
                let own = interface_addresses().iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
                format!("{ip}, of --bind-address or etcd.env, is not an address of this machine; it has {own}")
            })?;
            Ok(ip)
        }
        Some(any) => {
            let same_family = |ip: &IpAddr| ip.is_ipv4() == any.is_ipv4();
            routed(towards).chain(interface_addresses()).find(same_family).with_context(|| {
                format!("--bind-address {any} asks for an address of its family, and this machine has none")
            })
        }
        None => match routed(towards).chain(interface_addresses()).next() {
            Some(ip) => Ok(ip),
            None => bail!("this machine has no address that other members could reach; give one with --bind-address"),
        },
    }
}

/// The source addresses towards the endpoints, then towards the default routes. Finding them sends no packet.
fn routed(towards: &[Endpoint]) -> impl Iterator<Item = IpAddr> {
    let cluster = towards.iter().flat_map(|endpoint| match &endpoint.host {
        Host::Ip(ip) => vec![SocketAddr::new(*ip, endpoint.port)],
        Host::Name(name) => (name.as_str(), endpoint.port).to_socket_addrs().map(Iterator::collect).unwrap_or_default(),
    });
    // Documentation prefixes: only the default route leads there.
    let default_routes = [
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)),
        SocketAddr::from((Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9)),
    ];
    let found: Vec<IpAddr> = cluster.chain(default_routes).filter_map(source_towards).filter(reachable).collect();
    found.into_iter()
}

fn source_towards(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Addresses of the interfaces that other machines can reach: IPv4 first, and within a family in the order of the
/// interfaces.
fn interface_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut addresses: Vec<IpAddr> =
        interfaces.iter().filter(|i| i.is_oper_up()).map(if_addrs::Interface::ip).filter(reachable).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

/// Whether other machines can reach the address: it is neither loopback nor unspecified nor link-local.
fn reachable(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !ip.is_unspecified() && !link_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_asked_for_must_be_this_machines() {
        let own = "127.0.0.2".parse().unwrap();
        assert_eq!(member_address(Some(own), &[]).unwrap(), own);
        let message = format!("{:#}", member_address(Some("192.0.2.7".parse().unwrap()), &[]).unwrap_err());
        assert!(
            message.contains("192.0.2.7, of --bind-address or etcd.env, is not an address of this machine"),
            "{message}"
        );
    }

    #[test]
    fn loopback_and_link_local_are_never_announced() {
        for ip in ["127.0.0.1", "::1", "169.254.3.4", "fe80::1", "0.0.0.0"] {
            assert!(!reachable(&ip.parse().unwrap()), "{ip}");
        }
        for ip in ["10.0.0.1", "fd00::1"] {
            assert!(reachable(&ip.parse().unwrap()), "{ip}");
        }
        let towards_itself = Endpoint::at("127.0.0.1".parse().unwrap(), 2379);
        assert!(routed(&[towards_itself]).all(|ip| !ip.is_loopback()));
    }
}
