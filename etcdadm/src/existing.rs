//! etcd's settings of a member that has data: they keep it from starting without.

use std::fmt::Write;

/// Settings of the first start, which etcd ignores where it has data.
const FIRST_START: &str = "ETCD_INITIAL_CLUSTER";
const EXISTING: &str = "ETCD_INITIAL_CLUSTER_STATE=existing";

/// Whether these are the settings of a member that has data: with itself as the only member of an existing cluster, no
/// version of etcd starts without a write-ahead log.
pub(crate) fn is_existing(text: &str) -> bool {
    let members = text.lines().find_map(|line| line.strip_prefix("ETCD_INITIAL_CLUSTER="));
    text.lines().any(|line| line == EXISTING) && !members.is_some_and(|members| members.contains(','))
}

/// The same settings for a member that has data. Only what its first start read is changed.
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
