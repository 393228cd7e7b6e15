//! A request to an etcd member, as described by its path: by gRPC, or through the JSON gateway.

use super::gate::Call;
use std::fmt;

/// A request to an etcd member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdCall {
    /// The method, such as `MemberRemove`, or the gateway's path.
    pub method: String,
    /// Name of the machine of the member.
    pub machine: String,
}

/// Methods that change something.
const WRITES: [&str; 17] = [
    "MemberAdd",
    "MemberRemove",
    "MemberUpdate",
    "MemberPromote",
    "MoveLeader",
    "Put",
    "DeleteRange",
    "Txn",
    "Compact",
    "LeaseGrant",
    "LeaseRevoke",
    "Defragment",
    "Downgrade",
    "/v3/cluster/member/add",
    "/v3/cluster/member/remove",
    "/v3/cluster/member/promote",
    "/v3/maintenance/transfer-leadership",
];

impl EtcdCall {
    /// The call that a request with this path to a member is.
    #[must_use]
    pub fn of(path: &str, machine: &str) -> Self {
        let method = match path.trim_start_matches('/').split_once('/') {
            Some((service, method)) if service.contains('.') => method,
            _ => path,
        };
        Self { method: method.to_owned(), machine: machine.to_owned() }
    }
}

impl Call for EtcdCall {
    fn is_write(&self) -> bool {
        WRITES.contains(&self.method.as_str())
    }

    /// The name has no machine: which member is called differs from run to run.
    fn name(&self) -> String {
        self.method.clone()
    }
}

impl fmt::Display for EtcdCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.method, self.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_something_has_a_number() {
        let remove = EtcdCall::of("/etcdserverpb.Cluster/MemberRemove", "m-0");
        assert_eq!(remove.to_string(), "MemberRemove at m-0");
        assert!(remove.is_write());
        for path in ["/etcdserverpb.KV/Range", "/etcdserverpb.Cluster/MemberList", "/v3/maintenance/status"] {
            assert!(!EtcdCall::of(path, "m-0").is_write(), "{path}");
        }
        assert!(EtcdCall::of("/v3/cluster/member/remove", "m-0").is_write());
    }
}
