//! Values as Go programs write them.

use std::time::Duration;

use etcd_values::{DEFAULT_ETCD_VERSION, EtcdVersion, go_duration, parse_id};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tracing::level_filters::LevelFilter;

/// A boolean in any spelling that Go's `strconv.ParseBool` accepts.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// A positive duration.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let duration = go_duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "write a positive duration with units, like 10s, 500ms or 1m30s".to_owned())
}

/// A time in the form of RFC 3339, such as `2026-01-31T12:00:00Z`.
pub(super) fn time(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "write a time like 2026-01-31T12:00:00Z".to_owned())
}

/// An ID as etcd's logs and `etcdctl member list` write it, with or without `0x`.
pub(super) fn id(text: &str) -> Result<u64, String> {
    parse_id(text).ok_or_else(|| "write an ID in hexadecimal, like cdf818194e3a8c32".to_owned())
}

/// A log level, by the names that the replaced program knew, or `trace`.
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

/// The init system. `kubelet` gets its own message, because the replaced program supported it.
pub(super) fn init_system(text: &str) -> Result<String, String> {
    match text {
        "systemd" => Ok(text.to_owned()),
        "kubelet" => Err("this etcdadm cannot run etcd under kubelet yet; use systemd".to_owned()),
        _ => Err("the only init system is systemd".to_owned()),
    }
}

/// A version of etcd that this program can run.
pub(super) fn version(text: &str) -> Result<EtcdVersion, String> {
    let version: EtcdVersion = text.parse().map_err(|invalid: etcd_values::Invalid| invalid.why)?;
    if version.is_supported() {
        Ok(version)
    } else {
        Err(format!(
            "etcd {text} is not supported; use 3.4 or a later 3.x, but not 3.5.0 to 3.5.2, which may lose data (etcd#13766): for example {DEFAULT_ETCD_VERSION}"
        ))
    }
}

/// A setting of etcd, `name=value`.
pub(super) fn etcd_flag(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it like snapshot-count=10000")?;
    Ok((name.to_owned(), value.to_owned()))
}
