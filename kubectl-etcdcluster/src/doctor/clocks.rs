//! The clocks of this computer and of the API server. Another check covers the clocks of the machines.

use super::{Finding, Installation};

/// The tolerance in seconds: an answer takes a while, and its time is in whole seconds.
pub(super) const CLOSE: u64 = 10;

pub(super) fn check(installation: &Installation) -> Vec<Finding> {
    let server = match &installation.server_time {
        Err(why) => return super::unread("the API server's clock", why),
        Ok(server) => server,
    };
    let apart = installation.now.as_second().abs_diff(server.as_second());
    let seen = format!("this computer and the API server are {apart} s apart");
    vec![if apart <= CLOSE {
        Finding::ok(seen)
    } else {
        Finding::warning(
            format!("{seen}: the ages that this program shows may be wrong by that, and times in logs do not match"),
            "set both by NTP; look at the clocks of etcd's machines too (doctor NAME --dial)",
        )
    }]
}
