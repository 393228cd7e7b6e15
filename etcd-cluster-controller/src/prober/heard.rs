//! Whom the leader hears: those from whom it has received something lately.
//!
//! etcd's gauge `etcd_network_active_peers` does not say it. On a member that has joined, each peer that it was told of while
//! joining is counted a second time, and that second count never ends: the gauge is 2 for a peer that is well, and stays 1 for
//! one that is dead (etcd 3.5 to 3.7, `rafthttp/remote.go` and `peer_status.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes that a member has received from each other since it started.
pub(crate) type Received = BTreeMap<u64, f64>;

/// Who sends nothing for so long is not heard. A follower answers every heartbeat, and those come at least every 5 seconds.
const SILENCE: Duration = Duration::from_secs(10);

/// What is known so far, of one leader.
#[derive(Debug)]
pub(super) struct Heard {
    leader: u64,
    /// What it had received at `since`.
    received: Received,
    since: Instant,
    /// `None`: one look says nothing.
    heard: Option<BTreeSet<u64>>,
}

impl Heard {
    /// Takes in what `leader` has received by now. Of another leader than before, nothing can be said yet.
    pub(super) fn update(before: Option<Self>, leader: u64, received: Received, now: Instant) -> Self {
        let Some(before) = before else { return Self { leader, received, since: now, heard: None } };
        if before.leader != leader {
            return Self { leader, received, since: now, heard: before.heard };
        }
        // Less than before: it has been started again since.
        let sends = |(id, bytes): (&u64, &f64)| before.received.get(id).is_none_or(|then| bytes != then).then_some(*id);
        let mut heard: BTreeSet<u64> = received.iter().filter_map(sends).collect();
        if now.duration_since(before.since) < SILENCE {
            // Too early to say that somebody is silent.
            heard.extend(before.heard.iter().flatten());
            return Self { heard: Some(heard), ..before };
        }
        Self { leader, received, since: now, heard: Some(heard) }
    }

    /// Those that it hears. `None`: that is not known.
    pub(super) fn members(&self) -> Option<BTreeSet<u64>> {
        self.heard.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_more_is_heard_and_who_is_silent_for_long_is_not() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let received = |two: f64, three: f64| Received::from([(2, two), (3, three)]);
        let first = Heard::update(None, 1, received(100.0, 50.0), at(0));
        assert_eq!(first.members(), None, "one look says nothing");
        let second = Heard::update(Some(first), 1, received(101.0, 50.0), at(1));
        assert_eq!(second.members(), Some([2].into()));
        let third = Heard::update(Some(second), 1, received(101.0, 50.0), at(9));
        assert_eq!(third.members(), Some([2].into()), "it may only be slow");
        let fourth = Heard::update(Some(third), 1, received(101.0, 51.0), at(10));
        assert_eq!(fourth.members(), Some([2, 3].into()), "both have sent something since the first look");
        let fifth = Heard::update(Some(fourth), 1, received(101.0, 60.0), at(20));
        assert_eq!(fifth.members(), Some([3].into()));
    }

    #[test]
    fn a_new_leader_is_listened_to_before_it_is_believed() {
        let now = Instant::now();
        let received = |two: f64| Received::from([(2, two)]);
        let first = Heard::update(None, 1, received(100.0), now);
        let heard = Heard::update(Some(first), 1, received(101.0), now);
        let other = Heard::update(Some(heard), 3, received(7.0), now);
        assert_eq!(other.members(), Some([2].into()), "what was known stays until it is known better");
        let silent = Heard::update(Some(other), 3, received(7.0), now + SILENCE);
        assert_eq!(silent.members(), Some([].into()));
    }
}
