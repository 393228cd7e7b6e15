//! Values of flags in the forms that Go's flags and Cluster API's managers accept.

use crate::diagnostics::{TlsVersion, unknown_groups};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Where a server listens. `None`: nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub Option<SocketAddr>);

/// Reads an address in Go's form: without a host it means every address, and `0` means none.
pub(super) fn address(text: &str) -> Result<Address, String> {
    if matches!(text, "" | "0") {
        return Ok(Address(None));
    }
    if let Ok(address) = text.parse() {
        return Ok(Address(Some(address)));
    }
    let known = text.rsplit_once(':').and_then(|(host, port)| {
        let host: IpAddr = match host {
            "" => Ipv6Addr::UNSPECIFIED.into(),
            "localhost" => Ipv4Addr::LOCALHOST.into(),
            _ => return None,
        };
        Some(SocketAddr::new(host, port.parse().ok()?))
    });
    let expected = "expected an address such as :9440, 127.0.0.1:9440 or [::1]:9440, or 0 for none";
    known.map(|address| Address(Some(address))).ok_or_else(|| expected.to_owned())
}

/// Reads a duration in Go's form.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<kube::core::Duration>().ok().filter(|duration| !duration.is_negative());
    parsed.map(Duration::from).ok_or_else(|| "expected a duration such as 500ms, 15s or 1m30s".to_owned())
}

/// Reads a truth value in any of Go's forms.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Reads a number.
pub(super) fn number(text: &str) -> Result<f32, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

/// Reads the name of a namespace. Empty: all of them.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let valid = text.len() <= 63 && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-');
    let expected = "expected the name of one namespace: at most 63 lower-case letters, digits and dashes";
    if valid { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// Reads the value of a label. Empty: no filter.
pub(super) fn label(text: &str) -> Result<String, String> {
    let at_the_ends = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| at_the_ends(c) || matches!(c, '-' | '_' | '.');
    let valid =
        text.len() <= 63 && text.chars().all(inner) && text.starts_with(at_the_ends) && text.ends_with(at_the_ends);
    let expected = "expected the value of a label: at most 63 letters, digits, dashes, underscores and dots, the first and \
                    the last a letter or digit";
    if valid || text.is_empty() { Ok(text.to_owned()) } else { Err(expected.to_owned()) }
}

/// Reads feature gates, as `Name=true,Other=false`.
pub(super) fn feature_gates(text: &str) -> Result<String, String> {
    let is_gate = |gate: &str| gate.split_once('=').is_some_and(|(name, on)| !name.is_empty() && boolean(on).is_ok());
    let valid = text.split(',').filter(|gate| !gate.is_empty()).all(is_gate);
    if valid { Ok(text.to_owned()) } else { Err("expected pairs such as Name=true,Other=false".to_owned()) }
}

/// Reads Go's name of a version of TLS. This program has no version before 1.2, so an earlier one gives 1.2.
pub(super) fn tls_version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => Ok(TlsVersion::V1_2),
        "VersionTLS13" => Ok(TlsVersion::V1_3),
        _ => Err("expected VersionTLS12 or VersionTLS13".to_owned()),
    }
}

/// Names of cipher suites. Empty: all available ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CipherSuites(pub Vec<String>);

/// Reads the names of cipher suites.
pub(super) fn cipher_suites(text: &str) -> Result<CipherSuites, String> {
    let names: Vec<String> = text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let valid = names.iter().all(|name| name.starts_with("TLS_"));
    let expected = "expected names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, separated by commas";
    if valid { Ok(CipherSuites(names)) } else { Err(expected.to_owned()) }
}

/// Numbers of groups for the key exchange of TLS. Empty: all available ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups(pub Vec<u16>);

/// Reads numbers of groups for the key exchange, which Go calls curves. One at least has to be available.
pub(super) fn groups(text: &str) -> Result<Groups, String> {
    let numbers = text.split(',').map(str::trim).filter(|number| !number.is_empty()).map(str::parse);
    let expected = "expected numbers separated by commas, and among them 23 (P-256), 24 (P-384) or 29 (X25519)";
    let numbers = numbers.collect::<Result<Vec<u16>, _>>().map_err(|_| expected.to_owned())?;
    let some_is_known = numbers.is_empty() || unknown_groups(&numbers).len() < numbers.len();
    if some_is_known { Ok(Groups(numbers)) } else { Err(expected.to_owned()) }
}
