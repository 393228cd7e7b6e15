//! etcd versions as users write them.

pub use etcd_values::{DEFAULT_ETCD_VERSION, EtcdVersion};
