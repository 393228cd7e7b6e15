//! Versions and settings of etcd, and the rules for them.
//!
//! The node program and the controllers that check a user's settings share these rules, so that whatever passes
//! admission also starts on the machine.

mod cipher_suites;
mod duration;
pub mod endpoint;
mod flags;
mod url;
mod version;

pub use cipher_suites::{HTTP2_CIPHER_SUITES, check_cipher_suites, cipher_suites_with_ecdsa};
pub use duration::go_duration;
pub use flags::{
    DEFAULT_ELECTION_TIMEOUT, DEFAULT_HEARTBEAT_INTERVAL, ELECTION_TIMEOUT, HEARTBEAT_INTERVAL, QUOTA_BACKEND_BYTES,
    SNAPSHOT_COUNT, TUNING_FLAGS, check_flags, checks_data_at_start, environment_name, features, flag_exists,
    is_user_flag, user_flags,
};
pub use version::{DEFAULT_ETCD_VERSION, EtcdVersion};

/// The environment variable for `etcdadm init --not-after`. Bootstrap data sets the variable and not the flag, because
/// an etcdadm that does not know the variable ignores it.
pub const INIT_NOT_AFTER: &str = "ETCDADM_INIT_NOT_AFTER";

/// The environment variable for `etcdadm join --cluster-id`, for the same reason.
pub const CLUSTER_ID: &str = "ETCDADM_CLUSTER_ID";

/// The ID of a cluster or a member as etcd's logs and `etcdctl member list` write it: hexadecimal, with or without
/// `0x`.
#[must_use]
pub fn parse_id(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_hex = digits.chars().all(|digit| digit.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|id| is_hex && *id != 0)
}

/// The environment variable for `etcdadm --timeout`, for the same reason as with `INIT_NOT_AFTER`.
pub const TIMEOUT: &str = "ETCDADM_TIMEOUT";

/// A setting that etcd or this project cannot work with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}")]
pub struct Invalid {
    /// The setting, as the user wrote its name.
    pub name: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl Invalid {
    fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}
