//! Settings of etcd itself. Their rules are in the crate `etcd-values`, which etcdadm uses too.

use crate::version::EtcdVersion;
use etcd_values::{
    DEFAULT_ELECTION_TIMEOUT, DEFAULT_HEARTBEAT_INTERVAL, ELECTION_TIMEOUT, HEARTBEAT_INTERVAL, QUOTA_BACKEND_BYTES,
    SNAPSHOT_COUNT, TUNING_FLAGS, check_flags, features, user_flags,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of etcd. A setting that is not given has etcd's default. A change has no effect on members that exist
/// already.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(election_rule()).message("electionTimeoutMilliseconds (default 1000) must be at least five times heartbeatIntervalMilliseconds (default 100): etcd does not start otherwise; ten times is usual"))]
#[x_kube(validation = Rule::new("!has(self.autoCompactionMode) || has(self.autoCompactionRetention)").message("autoCompactionMode has no effect without autoCompactionRetention"))]
#[x_kube(validation = Rule::new(r"!has(self.autoCompactionRetention) || self.autoCompactionRetention.matches(has(self.autoCompactionMode) && self.autoCompactionMode == 'revision' ? '^[0-9]+$' : '^([0-9]+|([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+)$')").message("autoCompactionRetention must be a number of hours or a duration such as 30m; with autoCompactionMode revision, a number of revisions"))]
pub struct EtcdSettings {
    /// Size of the database, in bytes, at which etcd refuses writes until somebody has made room. etcd's default is
    /// 2147483648 (2 GiB); etcd's documentation suggests at most 8589934592 (8 GiB). Give the machine more memory than
    /// the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = *QUOTA_BACKEND_BYTES.start(), max = *QUOTA_BACKEND_BYTES.end()))]
    pub quota_backend_bytes: Option<i64>,

    /// Milliseconds between two heartbeats of the leader. A good value is about the round-trip time between the two
    /// members that are the farthest apart. etcd's default is 100. The value must be the same on all members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = *HEARTBEAT_INTERVAL.start(), max = *HEARTBEAT_INTERVAL.end()))]
    pub heartbeat_interval_milliseconds: Option<i32>,

    /// Milliseconds without a heartbeat after which a member stands for election. A good value is about ten round
    /// trips. The value must be at least five times `heartbeatIntervalMilliseconds`, and the same on all members.
    /// etcd's default is 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = *ELECTION_TIMEOUT.start(), max = *ELECTION_TIMEOUT.end()))]
    pub election_timeout_milliseconds: Option<i32>,

    /// Number of committed entries after which etcd writes a snapshot and shortens its log. etcd's default is 10000
    /// (100000 before 3.6). With a higher number, etcd needs more memory, and a member that was away can catch up
    /// without a full copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = *SNAPSHOT_COUNT.start(), max = *SNAPSHOT_COUNT.end()))]
    pub snapshot_count: Option<i32>,

    /// What `autoCompactionRetention` counts: `periodic` (the default) counts time, and `revision` counts revisions.
    /// The API servers of Kubernetes compact etcd by themselves, every five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_compaction_mode: Option<AutoCompactionMode>,

    /// History that etcd keeps when it compacts by itself: a number of hours or a duration such as 30m. With
    /// `autoCompactionMode: revision`, it is a number of revisions. If not set, etcd does not compact by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub auto_compaction_retention: Option<String>,

    /// Further URLs on which etcd serves /metrics, /health, /livez and /readyz, such as `http://0.0.0.0:2381`. With
    /// http, anybody who reaches the port can read them. With https, clients need a certificate of etcd's CA.
    #[serde(default, rename = "listenMetricsURLs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 128)))]
    #[x_kube(validation = Rule::new(r"self.all(url, url.matches(r'^https?://(\[[0-9A-Fa-f:.]+\]|[0-9]{1,3}([.][0-9]{1,3}){3}|localhost):[1-9][0-9]{0,4}$') && !url.matches(':(2379|2380)$'))").message("must be http or https URLs with an IP address of the machine (0.0.0.0 or [::] for all) and a port other than 2379 and 2380, such as http://0.0.0.0:2381"))]
    pub listen_metrics_urls: Vec<String>,

    /// Further flags of etcd. Only flags that tune etcd are accepted: etcdadm sets what decides membership, identity,
    /// durability, addresses and TLS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_flags: Vec<EtcdFlag>,
}

/// A flag of etcd.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new(features_rule()).message(features_message().as_str()).field_path(".value"))]
pub struct EtcdFlag {
    /// Name of the flag without the leading dashes, such as `max-request-bytes`. The etcd version in use must have the
    /// flag: up to etcd 3.6 some names begin with `experimental-`, and from 3.7 on none.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(validation = Rule::new(no_field_rule()).message("this flag has a field of its own in etcd: set quotaBackendBytes, heartbeatIntervalMilliseconds, electionTimeoutMilliseconds, snapshotCount, autoCompactionMode, autoCompactionRetention or listenMetricsURLs"))]
    #[x_kube(validation = Rule::new(free_rule()).message(free_message().as_str()))]
    pub name: String,
    /// Value of the flag.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = Rule::new(r#"self.matches("^[!%&()*+,./0-9:;<=>?@A-Z\\[\\]^_a-z{|}~-]+$")"#).message("must be visible ASCII characters without spaces, quotes, $, #, \\ and `"))]
    pub value: String,
}

/// What `autoCompactionRetention` counts: `periodic` (the default) counts time, and `revision` counts revisions. The
/// API servers of Kubernetes compact etcd by themselves, every five minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoCompactionMode {
    /// Time.
    Periodic,
    /// Revisions.
    Revision,
}

impl EtcdSettings {
    /// The settings as flags of etcd. Each has the path of the field that it comes from, below `spec.etcd`, then its
    /// name and its value.
    #[must_use]
    pub fn flags(&self) -> Vec<(String, &str, String)> {
        let typed = [
            ("quotaBackendBytes", "quota-backend-bytes", self.quota_backend_bytes.map(|n| n.to_string())),
            (
                "heartbeatIntervalMilliseconds",
                "heartbeat-interval",
                self.heartbeat_interval_milliseconds.map(|n| n.to_string()),
            ),
            (
                "electionTimeoutMilliseconds",
                "election-timeout",
                self.election_timeout_milliseconds.map(|n| n.to_string()),
            ),
            ("snapshotCount", "snapshot-count", self.snapshot_count.map(|n| n.to_string())),
            ("autoCompactionMode", "auto-compaction-mode", self.auto_compaction_mode.map(|m| m.as_str().to_owned())),
            ("autoCompactionRetention", "auto-compaction-retention", self.auto_compaction_retention.clone()),
            (
                "listenMetricsURLs",
                "listen-metrics-urls",
                (!self.listen_metrics_urls.is_empty()).then(|| self.listen_metrics_urls.join(",")),
            ),
        ];
        let typed = typed.into_iter().filter_map(|(field, name, value)| Some((field.to_owned(), name, value?)));
        let extra = self.extra_flags.iter().enumerate();
        typed
            .chain(extra.map(|(index, f)| (format!("extraFlags[{index}]"), f.name.as_str(), f.value.clone())))
            .collect()
    }

    /// Whether the feature `InitialCorruptCheck` is on: a member compares its data with the other members' data before
    /// it serves, and does not start if the data differs.
    #[must_use]
    pub fn checks_data_at_start(&self) -> bool {
        let flags: Vec<(&str, &str)> = self.extra_flags.iter().map(|f| (f.name.as_str(), f.value.as_str())).collect();
        etcd_values::checks_data_at_start(&flags)
    }

    /// Checks the flags, each alone and all together, and that an etcd of this version has them.
    ///
    /// # Errors
    /// The path of the first field that is wrong, below `spec.etcd`, and what would be right.
    pub fn check(&self, version: &EtcdVersion) -> Result<(), (String, String)> {
        let flags = self.flags();
        let pairs: Vec<(&str, &str)> = flags.iter().map(|(_, name, value)| (*name, value.as_str())).collect();
        check_flags(&pairs, version).map_err(|invalid| {
            // If two settings have the same name, the second one is wrong.
            let field = flags.iter().rfind(|(_, name, _)| *name == invalid.name).map_or("", |(field, ..)| field);
            (field.to_owned(), invalid.to_string())
        })
    }
}

impl AutoCompactionMode {
    /// The mode as etcd writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Revision => "revision",
        }
    }
}

fn election_rule() -> String {
    let value =
        |field: &str, default: u64| format!("(has(self.{field}Milliseconds) ? self.{field}Milliseconds : {default})");
    let heartbeat = value("heartbeatInterval", DEFAULT_HEARTBEAT_INTERVAL);
    format!("{} >= 5 * {heartbeat}", value("electionTimeout", DEFAULT_ELECTION_TIMEOUT))
}

fn no_field_rule() -> String {
    format!("!(self in {TUNING_FLAGS:?})")
}

/// Flags that have a field pass this rule: `no_field_rule` has the message for them.
fn free_rule() -> String {
    format!("self in {:?}", user_flags())
}

fn free_message() -> String {
    let possible: Vec<_> = user_flags().into_iter().filter(|flag| !TUNING_FLAGS.contains(&flag.as_str())).collect();
    format!(
        "etcdadm sets what decides membership (initial-*, max-learners, strict-reconfig-check, force-new-cluster, \
         discovery*), durability (unsafe-*), identity and place (name, data-dir, wal-dir, config-file), addresses \
         (listen-*, advertise-*), TLS (client-*, peer-*, tls-* and the files) and how health is asked for \
         (enable-grpc-gateway); possible are {}",
        possible.join(", ")
    )
}

fn features_rule() -> String {
    let one = format!("({})=(true|false)", features().collect::<Vec<_>>().join("|"));
    format!("self.name != 'feature-gates' || self.value.matches('^{one}(,{one})*$')")
}

fn features_message() -> String {
    let possible = features().collect::<Vec<_>>().join(", ");
    format!("feature-gates must be FEATURE=true or FEATURE=false, with commas between them; possible are {possible}")
}
