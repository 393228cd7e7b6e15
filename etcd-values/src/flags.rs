//! etcd's settings that a user may give, by the names of etcd's flags without the leading dashes.

use crate::duration::go_duration;
use crate::url::check_listen_url;
use crate::{EtcdVersion, Invalid};
use std::ops::RangeInclusive;

mod names;

pub use names::{TUNING_FLAGS, features, flag_exists, user_flags};

/// Milliseconds between heartbeats, if the setting is not given.
pub const DEFAULT_HEARTBEAT_INTERVAL: u64 = 100;
/// Milliseconds without a heartbeat until an election, if the setting is not given.
pub const DEFAULT_ELECTION_TIMEOUT: u64 = 1000;
const MIB: u64 = 1024 * 1024;

/// The range of quota-backend-bytes, in bytes. etcd suggests at most 8 GiB, which is not a limit. With zero or less, it
/// would use a default or no quota at all.
pub const QUOTA_BACKEND_BYTES: RangeInclusive<u64> = 16 * MIB..=100 * 1024 * MIB;
/// The range of heartbeat-interval, in milliseconds.
pub const HEARTBEAT_INTERVAL: RangeInclusive<u64> = 1..=10_000;
/// The range of election-timeout, in milliseconds. etcd refuses more than 50 s.
pub const ELECTION_TIMEOUT: RangeInclusive<u64> = 5..=50_000;
/// The range of snapshot-count, in entries.
pub const SNAPSHOT_COUNT: RangeInclusive<u64> = 100..=1_000_000;

/// Settings that are refused: the reason, and how their names begin.
const REFUSED: [(&str, &[&str]); 19] = [
    ("it is set with --max-learners, the same on every member, and never changes", &["max-learners"]),
    ("it is always on: it keeps membership changes from losing quorum", &["strict-reconfig-check"]),
    ("etcdadm decides how a member starts", &["initial-", "discovery"]),
    ("it makes a cluster forget its other members", &["force-new-cluster"]),
    ("it trades away durability", &["unsafe-"]),
    ("etcdadm sets it; use --name", &["name"]),
    ("etcdadm sets it; use --data-dir", &["data-dir"]),
    ("etcdadm looks for the write-ahead log in the data directory", &["wal-dir"]),
    ("etcd ignores all other settings beside it", &["config-file"]),
    ("a member is not a proxy", &["proxy"]),
    ("a member is not a gateway", &["gateway"]),
    ("etcdadm decides what etcd listens on", &["listen-", "socket-"]),
    ("etcdadm sets it; use --bind-address", &["advertise-"]),
    ("etcdadm decides who may connect", &["host-whitelist", "cors"]),
    ("etcdadm sets everything about TLS", TLS),
    ("use --cipher-suites", &["cipher-suites"]),
    ("members with different values do not accept each other's users", &["auth-token", "bcrypt-cost"]),
    ("the v2 API is gone in etcd 3.6", &["enable-v2", "v2-"]),
    ("it is always on: members are asked for their health through it", &["enable-grpc-gateway"]),
];

/// How the names of settings about TLS begin.
const TLS: &[&str] =
    &["client-", "peer-", "cert-", "key-file", "ca-file", "trusted-ca-file", "auto-tls", "self-signed-", "tls-"];

/// The environment variable that etcd reads for a flag: `ETCD_SNAPSHOT_COUNT` for `snapshot-count`.
pub fn environment_name(flag: &str) -> String {
    format!("ETCD_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// Whether a user may give this setting at all.
pub fn is_user_flag(name: &str) -> bool {
    check_name(name).is_ok()
}

/// Checks settings that a user gives for an etcd of this version, each alone and all together. Names are those of etcd's
/// flags, without leading dashes.
///
/// # Errors
/// The first setting that is unknown, given twice, decided by etcdadm, or out of range; else the first one that this
/// version does not have.
pub fn check_flags(flags: &[(&str, &str)], version: &EtcdVersion) -> Result<(), Invalid> {
    for (index, (name, value)) in flags.iter().enumerate() {
        check_name(name)?;
        if flags[..index].iter().any(|(earlier, _)| stable(earlier) == stable(name)) {
            return Err(Invalid::new(*name, "it is given twice"));
        }
        check_value(name, value).map_err(|why| Invalid::new(*name, why))?;
    }
    check_together(flags)?;
    let exists = |(name, _): &(&str, &str)| flag_exists(name, version).map_err(|why| Invalid::new(*name, why));
    flags.iter().try_for_each(exists)
}

fn stable(name: &str) -> &str {
    name.strip_prefix(names::EXPERIMENTAL).unwrap_or(name)
}

fn check_name(name: &str) -> Result<(), Invalid> {
    let known = user_flags();
    if known.iter().any(|known| known == name) {
        return Ok(());
    }
    if let Some(gate) = names::feature_gate(name) {
        let why = format!(
            "no version of etcd has it; write experimental-{name}, or, from etcd 3.6 on, feature-gates with the value {gate}=true"
        );
        return Err(Invalid::new(name, why));
    }
    let stable = stable(name);
    let begins = |start: &&str| match start.ends_with('-') {
        true => stable.starts_with(start),
        false => stable == *start || stable.strip_prefix(start).is_some_and(|rest| rest.starts_with('-')),
    };
    let refused = REFUSED.iter().find(|(_, starts)| starts.iter().any(begins));
    let why = match refused {
        Some((why, _)) => format!("it cannot be set here: {why}"),
        None if name.starts_with('-') => "write it without leading dashes".to_owned(),
        None => format!("it is not known here; known are {}", known.join(", ")),
    };
    Err(Invalid::new(name, why))
}

fn check_value(name: &str, value: &str) -> Result<(), String> {
    // The value becomes a line of an environment file, where other characters would need quoting.
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_graphic() && !b"'\"\\$#`".contains(&b)) {
        return Err(format!("{value:?} cannot be used; give a value without spaces, quotes, \\, $, # and `"));
    }
    let within = |unit: &str, range: RangeInclusive<u64>| match number(value) {
        Some(number) if range.contains(&number) => Ok(()),
        _ => Err(format!("{value:?} is not a number of {unit} from {} to {}", range.start(), range.end())),
    };
    match name {
        "quota-backend-bytes" => within("bytes", QUOTA_BACKEND_BYTES),
        "heartbeat-interval" => within("milliseconds", HEARTBEAT_INTERVAL),
        "election-timeout" => within("milliseconds", ELECTION_TIMEOUT),
        "snapshot-count" => within("entries", SNAPSHOT_COUNT),
        "auto-compaction-mode" if !matches!(value, "periodic" | "revision") => {
            Err(format!("{value:?} is not a mode; write periodic or revision"))
        }
        names::FEATURE_GATES => names::check_feature_gates(value),
        "listen-metrics-urls" => value.split(',').try_for_each(check_listen_url),
        _ => Ok(()),
    }
}

/// Rules between settings. A setting that is not given has etcd's default.
fn check_together(flags: &[(&str, &str)]) -> Result<(), Invalid> {
    let value = |wanted: &str| flags.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    let milliseconds = |name, default| value(name).and_then(number).unwrap_or(default);
    let heartbeat = milliseconds("heartbeat-interval", DEFAULT_HEARTBEAT_INTERVAL);
    let election = milliseconds("election-timeout", DEFAULT_ELECTION_TIMEOUT);
    if election < 5 * heartbeat {
        let name = if value("election-timeout").is_some() { "election-timeout" } else { "heartbeat-interval" };
        let why = format!(
            "election-timeout ({election} ms) must be at least five times heartbeat-interval ({heartbeat} ms), or etcd \
             does not start; ten times is usual"
        );
        return Err(Invalid::new(name, why));
    }
    if let Some(retention) = value("auto-compaction-retention") {
        let by_revision = value("auto-compaction-mode") == Some("revision");
        if !(number(retention).is_some() || !by_revision && go_duration(retention).is_some()) {
            let form = if by_revision { "a number of revisions" } else { "hours, or a duration like 30m or 1h30m" };
            let why = format!("{retention:?} is not right for this auto-compaction-mode; give {form}");
            return Err(Invalid::new("auto-compaction-retention", why));
        }
    }
    check_features(flags)
}

/// How Go writes that a flag is on.
const TRUE: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];

/// Whether flags switch a feature on, by its own flag or by its gate.
fn is_on(flags: &[(&str, &str)], flag: &str, gate: &str) -> bool {
    flags.iter().any(|(name, value)| match *name {
        names::FEATURE_GATES => value.split(',').any(|one| one.strip_suffix("=true") == Some(gate)),
        _ => stable(name) == flag && TRUE.contains(value),
    })
}

/// Whether a member compares its data with the other members' data before it serves, and does not start if the data
/// differs: the feature `InitialCorruptCheck`.
pub fn checks_data_at_start(flags: &[(&str, &str)]) -> bool {
    is_on(flags, "initial-corrupt-check", "InitialCorruptCheck")
}

/// Rules of etcd between features, which it checks only when it starts.
fn check_features(flags: &[(&str, &str)]) -> Result<(), Invalid> {
    let gates = flags.iter().find(|(name, _)| *name == names::FEATURE_GATES).map(|(_, value)| *value);
    if gates.is_some()
        && let Some((name, _)) = flags.iter().find(|(name, _)| names::feature_gate(stable(name)).is_some())
    {
        return Err(Invalid::new(*name, "etcd does not take it beside feature-gates; write the feature there"));
    }
    let persists = is_on(flags, "enable-lease-checkpoint-persist", "LeaseCheckpointPersist");
    if persists && !is_on(flags, "enable-lease-checkpoint", "LeaseCheckpoint") {
        let name = gates.map_or("experimental-enable-lease-checkpoint-persist", |_| names::FEATURE_GATES);
        let why = "LeaseCheckpointPersist takes LeaseCheckpoint, or etcd does not start; switch both on";
        return Err(Invalid::new(name, why));
    }
    Ok(())
}

/// Reads a number without a sign. `u64::from_str` would accept a plus sign.
fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests;
