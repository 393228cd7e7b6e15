//! Values as Go programs write them.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

/// The init systems of `--init-system` that are implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitSystemName {
    /// systemd, through `systemctl`.
    Systemd,
}

/// A boolean in any spelling that Go's `strconv.ParseBool` takes.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// A positive duration like Go's `time.ParseDuration` takes: numbers with units, `1m30s`, `500ms`, `1.5h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const WRONG: &str = "write a positive duration with units, like 10s, 500ms or 1m30s";
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(WRONG)?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(WRONG.to_owned()),
        };
        let number: f64 = number.parse().map_err(|_| WRONG)?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| WRONG)?;
        total = total.checked_add(part).ok_or(WRONG)?;
        rest = after;
    }
    if total.is_zero() { Err(WRONG.to_owned()) } else { Ok(total) }
}

/// A level by the names that the replaced program knew, and `trace`.
pub(super) fn log_level(text: &str) -> Result<LevelFilter, String> {
    match text.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => Ok(LevelFilter::ERROR),
        "warn" | "warning" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err("write error, warn, info, debug or trace".to_owned()),
    }
}

/// The init system; `kubelet` gets an answer of its own, because the replaced program had it.
pub(super) fn init_system(text: &str) -> Result<InitSystemName, String> {
    match text {
        "systemd" => Ok(InitSystemName::Systemd),
        "kubelet" => Err("this etcdadm cannot run etcd under kubelet yet; use systemd".to_owned()),
        _ => Err("the only init system is systemd".to_owned()),
    }
}

/// A cipher suite that etcd knows: one that it does not know would keep it from starting.
pub(super) fn cipher_suite(text: &str) -> Result<String, String> {
    if CIPHER_SUITES.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("etcd knows no such cipher suite; it knows {}", CIPHER_SUITES.join(", ")))
    }
}

/// Go's names, secure suites only.
const CIPHER_SUITES: [&str; 15] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
];
