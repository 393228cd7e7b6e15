//! The names that a server certificate is valid for.

use std::net::IpAddr;

use crate::endpoint::is_dns_name;

/// A name that a server certificate is valid for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum San {
    /// An address.
    Ip(IpAddr),
    /// A DNS name.
    Dns(String),
}

/// Parses an extra name for the server certificate.
///
/// # Errors
/// When it is neither an address nor a DNS name.
pub(crate) fn parse_san(text: &str) -> Result<San, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(San::Ip(ip));
    }
    if is_dns_name(text.strip_prefix("*.").unwrap_or(text)) {
        return Ok(San::Dns(text.to_ascii_lowercase()));
    }
    Err(format!("{text:?} is neither an address nor a DNS name; write it like 10.0.0.1 or etcd.example.com"))
}
