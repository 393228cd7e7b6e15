//! URLs that etcd listens on.

use std::net::IpAddr;

/// Checks a URL for etcd to listen on: `http` or `https`, an address of the machine (the only DNS name that etcd
/// accepts there is `localhost`), and a port that etcd does not use already.
pub(crate) fn check_listen_url(text: &str) -> Result<(), String> {
    const EXAMPLE: &str = "write it like http://0.0.0.0:2381";
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let rest = rest.ok_or_else(|| format!("{text:?} is not an http or https URL; {EXAMPLE}"))?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| format!("{text:?} has no port; {EXAMPLE}"))?;
    let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let address = match bare {
        Some(inner) => inner.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()),
        None => host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4()),
    };
    if !address {
        return Err(format!("{host:?} is not an address to listen on; {EXAMPLE}"));
    }
    match port.parse::<u16>() {
        Ok(2379 | 2380) => Err(format!("port {port} is taken by etcd's own clients or members; {EXAMPLE}")),
        Ok(1..) if port.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
        _ => Err(format!("{port:?} is not a port; {EXAMPLE}")),
    }
}
