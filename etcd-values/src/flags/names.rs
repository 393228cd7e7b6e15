//! The names of etcd's settings that a user may give, and which versions of etcd have them. The source is etcd's
//! command line: `real_etcd` compares the lists with each release.

use crate::EtcdVersion;

/// What etcd 3.5 and 3.6 write before the name of a setting that was not stable yet. etcd 3.7 has none of these names.
pub(super) const EXPERIMENTAL: &str = "experimental-";

/// The setting that switches features on and off, from etcd 3.6 on.
pub(super) const FEATURE_GATES: &str = "feature-gates";

/// Settings that have rules here.
pub const TUNING_FLAGS: [&str; 7] = [
    "quota-backend-bytes",
    "heartbeat-interval",
    "election-timeout",
    "snapshot-count",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "listen-metrics-urls",
];

// The settings below concern speed, amounts, logs or checks, and nothing that the survival of an etcd cluster depends
// on. etcd itself checks their values.

/// Settings that every version has.
const FREE_FLAGS: [&str; 20] = [
    "backend-batch-interval",
    "backend-batch-limit",
    "backend-bbolt-freelist-type",
    "enable-log-rotation",
    "enable-pprof",
    "grpc-keepalive-interval",
    "grpc-keepalive-min-time",
    "grpc-keepalive-timeout",
    "log-level",
    "log-outputs",
    "log-rotation-config-json",
    "max-concurrent-streams",
    "max-request-bytes",
    "max-snapshots",
    "max-txn-ops",
    "max-wals",
    "metrics",
    "pre-vote",
    "raft-read-timeout",
    "raft-write-timeout",
];

/// Settings that etcd has from 3.6 on.
const FROM_3_6: [&str; 2] = ["log-format", "warning-unary-request-duration"];

/// A setting that etcd 3.6 alone has with `experimental-`, and also without it.
const EXPERIMENTAL_IN_3_6: &str = "experimental-warning-unary-request-duration";

/// Settings that etcd 3.5 has with `experimental-`, 3.6 with and without it, and 3.7 without it.
const STABLE_FROM_3_6: [&str; 14] = [
    "bootstrap-defrag-threshold-megabytes",
    "compact-hash-check-time",
    "compaction-batch-limit",
    "compaction-sleep-interval",
    "corrupt-check-time",
    "distributed-tracing-address",
    "distributed-tracing-instance-id",
    "distributed-tracing-sampling-rate",
    "distributed-tracing-service-name",
    "downgrade-check-time",
    "enable-distributed-tracing",
    "snapshot-catchup-entries",
    "warning-apply-duration",
    "watch-progress-notify-interval",
];

/// Features: the setting, which etcd 3.5 and 3.6 have with `experimental-`, and the feature gate from 3.6 on. etcd's
/// other features are not stable, or decide more than speed.
const FEATURES: [(&str, &str); 6] = [
    ("compact-hash-check-enabled", "CompactHashCheck"),
    ("enable-lease-checkpoint", "LeaseCheckpoint"),
    ("enable-lease-checkpoint-persist", "LeaseCheckpointPersist"),
    // The only setting allowed out of `initial-`. The member compares its data with the other members' data before it
    // serves. See docs/decisions/0036-initial-corrupt-check.md.
    ("initial-corrupt-check", "InitialCorruptCheck"),
    ("stop-grpc-service-on-defrag", "StopGRPCServiceOnDefrag"),
    ("txn-mode-write-with-shared-buffer", "TxnModeWriteWithSharedBuffer"),
];

/// The names of all settings that a user may give.
pub fn user_flags() -> Vec<String> {
    let early = STABLE_FROM_3_6.into_iter().chain(FEATURES.map(|(flag, _)| flag));
    let plain = TUNING_FLAGS.into_iter().chain(FREE_FLAGS).chain(FROM_3_6).chain(STABLE_FROM_3_6);
    let plain = plain.chain([FEATURE_GATES]).map(str::to_owned);
    let early = early.map(|flag| format!("{EXPERIMENTAL}{flag}")).chain([EXPERIMENTAL_IN_3_6.to_owned()]);
    plain.chain(early).collect()
}

/// The features that `feature-gates` may switch.
pub fn features() -> impl Iterator<Item = &'static str> {
    FEATURES.into_iter().map(|(_, gate)| gate)
}

/// The feature gate of a setting, given without `experimental-`.
pub(super) fn feature_gate(flag: &str) -> Option<&'static str> {
    FEATURES.into_iter().find(|(name, _)| *name == flag).map(|(_, gate)| gate)
}

/// Whether an etcd of this version has a setting that a user may give.
///
/// # Errors
/// What to write instead.
pub fn flag_exists(name: &str, version: &EtcdVersion) -> Result<(), String> {
    let line = (version.major(), version.minor());
    if let Some(stable) = name.strip_prefix(EXPERIMENTAL) {
        return match feature_gate(stable) {
            _ if name == EXPERIMENTAL_IN_3_6 && line < (3, 6) => Err(too_early(version)),
            _ if line < (3, 7) => Ok(()),
            Some(gate) => {
                Err(format!("etcd {version} does not have it; write {FEATURE_GATES} with the value {gate}=true"))
            }
            None => Err(format!("etcd {version} does not have it; write {stable}")),
        };
    }
    if line >= (3, 6) {
        return Ok(());
    }
    if STABLE_FROM_3_6.contains(&name) {
        return Err(format!("etcd {version} does not have it; write {EXPERIMENTAL}{name}"));
    }
    if name == FEATURE_GATES {
        let example = "such as experimental-initial-corrupt-check with the value true";
        return Err(format!("etcd {version} does not have it; write the flag of the feature, {example}"));
    }
    match FROM_3_6.contains(&name) {
        true => Err(too_early(version)),
        false => Ok(()),
    }
}

fn too_early(version: &EtcdVersion) -> String {
    format!("etcd {version} does not have it; leave it out before etcd 3.6")
}

/// Checks the value of `feature-gates`, such as `InitialCorruptCheck=true,CompactHashCheck=true`.
pub(super) fn check_feature_gates(value: &str) -> Result<(), String> {
    let is_known = |one: &str| {
        let gate = one.strip_suffix("=true").or_else(|| one.strip_suffix("=false"));
        gate.is_some_and(|gate| features().any(|known| known == gate))
    };
    match value.split(',').find(|one| !is_known(one)) {
        None => Ok(()),
        Some(one) => Err(format!(
            "{one:?} cannot be set here; write FEATURE=true or FEATURE=false, with commas between them; possible are {}",
            features().collect::<Vec<_>>().join(", ")
        )),
    }
}
