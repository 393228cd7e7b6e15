//! Hosts of URLs.

/// Host of a URL as Kubernetes writes addresses: IPv6 without brackets, and in its shortest form. `None` if the text is
/// not a URL with a host.
#[must_use]
pub fn host_of(url: &str) -> Option<String> {
    match url::Url::parse(url).ok()?.host()? {
        url::Host::Domain(name) => Some(name.to_owned()),
        url::Host::Ipv4(address) => Some(address.to_string()),
        url::Host::Ipv6(address) => Some(address.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_as_kubernetes_writes_them() {
        for (url, host) in [
            ("https://10.0.0.1:2380", Some("10.0.0.1")),
            ("https://[fd00::1]:2380", Some("fd00::1")),
            ("https://[fd00:0:0::0001]:2380/", Some("fd00::1")),
            ("https://Member.example/", Some("member.example")),
            ("https://user@member:2380/path", Some("member")),
            ("10.0.0.1:2380", None),
            ("nonsense", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }
}
