//! Names and URLs as the documentation has them. They are written down here a second time: if our own code got one
//! wrong, the observer would otherwise be wrong in the same way.

use std::net::{IpAddr, Ipv6Addr};

/// The annotation on the Machine of a member that keeps the machine running until the member has left etcd.
pub(super) const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd-member";

/// The URL at which a member serves clients.
pub(super) fn client_url(address: &str) -> String {
    if address.parse::<Ipv6Addr>().is_ok() {
        format!("https://[{address}]:2379")
    } else {
        format!("https://{address}:2379")
    }
}

/// The host of a member's URL, as Kubernetes writes addresses: IPv6 without brackets, and in its shortest form.
pub(super) fn host_of(url: &str) -> Option<String> {
    let (host, _port) = url.strip_prefix("https://")?.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    Some(host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |address| address.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_hosts_belong_together() {
        for (host, url) in [
            ("10.77.0.11", "https://10.77.0.11:2379"),
            ("fd00::1", "https://[fd00::1]:2379"),
            ("member.example", "https://member.example:2379"),
        ] {
            assert_eq!(client_url(host), url);
            assert_eq!(host_of(url).as_deref(), Some(host));
        }
        assert_eq!(host_of("https://[fd00:0:0::0001]:2380").as_deref(), Some("fd00::1"));
        assert_eq!(host_of("10.77.0.11:2379"), None);
    }
}
