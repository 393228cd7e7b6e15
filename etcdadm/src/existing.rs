//! etcd's settings for a member that has data: they keep the member from starting without its data.

use std::fmt::Write;

/// Settings for the first start, which etcd ignores if it has data.
const FIRST_START: &str = "ETCD_INITIAL_CLUSTER";
const EXISTING: &str = "ETCD_INITIAL_CLUSTER_STATE=existing";

/// Whether these are the settings of a member that has data. They name this member as the only member of an existing
/// cluster, and with that no version of etcd starts without a write-ahead log.
pub(crate) fn is_existing(text: &str) -> bool {
    let members = text.lines().find_map(|line| line.strip_prefix("ETCD_INITIAL_CLUSTER="));
    text.lines().any(|line| line == EXISTING) && !members.is_some_and(|members| members.contains(','))
}

/// The same settings for a member that has data. Only the settings for the first start change.
pub(crate) fn as_existing(text: &str) -> String {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let own = value("ETCD_NAME").zip(value("ETCD_INITIAL_ADVERTISE_PEER_URLS"));
    let mut existing: String =
        text.lines().filter(|line| !line.starts_with(FIRST_START)).flat_map(|l| [l, "\n"]).collect();
    if let Some((name, url)) = own {
        let _ = writeln!(existing, "{FIRST_START}={name}={url}");
    }
    existing + EXISTING + "\n"
}
