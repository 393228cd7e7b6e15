//! Where members are reached: client endpoints as they are typed, and the URLs that members announce.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Port of etcd's client API, health and metrics.
pub const CLIENT_PORT: u16 = 2379;
/// Port on which members talk to each other.
pub const PEER_PORT: u16 = 2380;

const EXAMPLE: &str = "write it like https://10.0.0.1:2379 or https://[fd00::1]:2379";

/// Host part of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address, compared by value: `::1` and `0:0:0:0:0:0:0:1` are one host.
    Ip(IpAddr),
    /// A DNS name, in lower case.
    Name(String),
}

/// An `https` URL with host and port and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The port on that host.
    pub port: u16,
}

impl Endpoint {
    /// The endpoint at an address.
    pub fn at(ip: IpAddr, port: u16) -> Self {
        Self { host: Host::Ip(ip), port }
    }
}

impl fmt::Display for Host {
    /// Without brackets, which is how TLS expects a server name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(ip) => write!(f, "https://{}", SocketAddr::new(*ip, self.port)),
            Host::Name(name) => write!(f, "https://{name}:{}", self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(rest) = text.strip_prefix("https://") else {
            let why = if text.starts_with("http://") { "members speak TLS only" } else { "it is not an https URL" };
            return Err(format!("{why}; {EXAMPLE}"));
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(inner) = authority.strip_prefix('[') {
            let (address, after) = inner.split_once(']').ok_or_else(|| format!("a bracket is missing; {EXAMPLE}"))?;
            let ip: Ipv6Addr = address.parse().map_err(|_| format!("{address:?} is not an IPv6 address; {EXAMPLE}"))?;
            return Ok(Self::at(IpAddr::V6(ip), port(after)?));
        }
        if authority.matches(':').count() > 1 {
            return Err(format!("an IPv6 address needs brackets, and several endpoints a comma between; {EXAMPLE}"));
        }
        let (host, after) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        let port = port(after)?;
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Self::at(ip, port));
        }
        if !is_dns_name(host) {
            return Err(format!("{host:?} is neither an address nor a DNS name; {EXAMPLE}"));
        }
        Ok(Self { host: Host::Name(host.to_ascii_lowercase()), port })
    }
}

/// Parses a port such as `:2379`. An empty text means the client port.
fn port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(CLIENT_PORT);
    }
    let digits = text.strip_prefix(':').unwrap_or(text);
    match digits.parse::<u16>() {
        Ok(port) if port != 0 && digits.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(format!("{text:?} is not a port; {EXAMPLE}")),
    }
}

/// Whether `text` can be a DNS name. Underscores are allowed, since real host names contain them.
pub fn is_dns_name(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    // The last label of a name is never a number: that would be a mistyped IPv4 address.
    let numeric_end = text.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
    text.len() <= 253 && !numeric_end && text.split('.').all(label)
}

/// Whether two announced URLs denote the same endpoint, however they are spelled.
pub fn same_url(a: &str, b: &str) -> bool {
    match (a.parse::<Endpoint>(), b.parse::<Endpoint>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("https://10.0.0.1:2379", "https://10.0.0.1:2379")]
    #[case("https://10.0.0.1", "https://10.0.0.1:2379")]
    #[case("https://10.0.0.1:2379/", "https://10.0.0.1:2379")]
    #[case("https://[fd00::1]:2379", "https://[fd00::1]:2379")]
    #[case("https://[fd00:0:0:0::1]", "https://[fd00::1]:2379")]
    #[case("https://etcd-0.example.com:12379", "https://etcd-0.example.com:12379")]
    #[case("https://Etcd_0", "https://etcd_0:2379")]
    fn reads_endpoints(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
    }

    #[rstest]
    #[case("")]
    #[case("10.0.0.1:2379")]
    #[case("http://10.0.0.1:2379")]
    #[case("https://")]
    #[case("https://fd00::1:2379")]
    #[case("https://[fd00::1:2379")]
    #[case("https://[fd00::1]2379x")]
    #[case("https://10.0.0.1:0")]
    #[case("https://10.0.0.1:+80")]
    #[case("https://10.0.0.1:99999")]
    #[case("https://10.0.0.256")]
    #[case("https://user@10.0.0.1:2379")]
    #[case("https://10.0.0.1:2379/health")]
    #[case("https://a b")]
    #[case("https://-a")]
    #[case("https://10.0.0.1:2379https://10.0.0.2:2379")]
    fn refuses_and_shows_what_is_right(#[case] text: &str) {
        let message = text.parse::<Endpoint>().unwrap_err();
        assert!(message.contains("https://10.0.0.1:2379"), "{message}");
    }

    #[test]
    fn hosts_for_tls_have_no_brackets() {
        assert_eq!("https://[fd00::1]:2379".parse::<Endpoint>().unwrap().host.to_string(), "fd00::1");
    }

    #[test]
    fn urls_are_compared_by_what_they_mean() {
        assert!(same_url("https://[fd00::1]:2380", "https://[fd00:0::1]:2380/"));
        assert!(!same_url("https://10.0.0.1:2380", "https://10.0.0.1:2381"));
        assert!(same_url("http://old:2380", "http://old:2380"));
    }

    proptest! {
        #[test]
        fn every_address_survives_being_shown(ip: IpAddr, port in 1..=u16::MAX) {
            let endpoint = Endpoint::at(ip, port);
            prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(https://)?.{0,40}") {
            let _ = text.parse::<Endpoint>();
        }
    }
}
