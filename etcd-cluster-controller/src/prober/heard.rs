//! Whom the leader hears: the members from which it has received something lately, over a connection that holds.
//!
//! etcd's gauge `etcd_network_active_peers` does not show this. On a member that has joined, each peer that it learned
//! of while joining is counted a second time, and that second count never ends: the gauge is 2 for a peer that is well,
//! and stays 1 for a dead one (etcd 3.5 to 3.7, `rafthttp/remote.go` and `peer_status.go`). Received bytes alone
//! (`etcd_network_peer_received_bytes_total`) do not show it either: a member that crashes again and again sends a few
//! at each start.

use super::breaking::Breaking;
use crate::etcd_access::PeerCounters;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// A member that sends nothing for this long is not heard. A follower answers every heartbeat, and heartbeats come at
/// least every 5 seconds.
const SILENCE: Duration = Duration::from_secs(10);
/// How many intervals the latest answer of the leader stays valid. A run of checks lasts for as long without another
/// check.
const WORD_INTERVALS: u32 = 3;

/// What is known so far, of one leader.
#[derive(Debug)]
pub(super) struct Heard {
    leader: u64,
    /// Bytes that the leader had received from each other member at `since`.
    received: BTreeMap<u64, f64>,
    since: Instant,
    /// The members from which the leader receives something. `None`: not known, because one look says nothing.
    sending: Option<BTreeSet<u64>>,
    breaking: Breaking,
    /// When the leader answered last.
    told: Instant,
}

impl Heard {
    /// Takes over what `leader` has counted by now. The first answer of another leader changes nothing yet.
    pub(super) fn update(before: Option<Self>, leader: u64, counted: PeerCounters, now: Instant) -> Self {
        let PeerCounters { received, lost } = counted;
        let Some(before) = before else {
            let breaking = Breaking::new(lost, now);
            return Self { leader, received, since: now, sending: None, breaking, told: now };
        };
        let Self { sending: sent, breaking, .. } = before;
        if before.leader != leader {
            let breaking = breaking.of_another_leader(lost, now);
            return Self { leader, received, since: now, sending: sent, breaking, told: now };
        }
        let breaking = breaking.update(lost, now);
        // If the number is lower than before, the leader was restarted, and has received something since.
        let sends = |(id, bytes): (&u64, &f64)| before.received.get(id).is_none_or(|then| bytes != then).then_some(*id);
        let mut sending: BTreeSet<u64> = received.iter().filter_map(sends).collect();
        if now.duration_since(before.since) < SILENCE {
            // It is too early to say that a member is silent.
            sending.extend(sent.iter().flatten());
            let (received, since) = (before.received, before.since);
            return Self { leader, received, since, sending: Some(sending), breaking, told: now };
        }
        Self { leader, received, since: now, sending: Some(sending), breaking, told: now }
    }

    /// What is known while the leader does not answer. Its latest answer does not stay valid for ever: a member that
    /// was silent then may have been heard since.
    pub(super) fn kept(before: Option<Self>, interval: Duration, now: Instant) -> Option<Self> {
        before.filter(|before| now.duration_since(before.told) <= interval.saturating_mul(WORD_INTERVALS))
    }

    /// The members that the leader hears. `None`: not known.
    pub(super) fn members(&self) -> Option<BTreeSet<u64>> {
        let sending = self.sending.as_ref()?;
        // If the leader loses the connections to all members, the fault is probably its own.
        let is_its_own = sending.len() > 1 && sending.iter().all(|id| self.breaking.has(*id));
        Some(sending.iter().copied().filter(|id| is_its_own || !self.breaking.has(*id)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted<const N: usize, const M: usize>(received: [(u64, f64); N], lost: [(u64, f64); M]) -> PeerCounters {
        PeerCounters { received: received.into(), lost: lost.into() }
    }

    #[test]
    fn who_sends_more_is_heard_and_who_is_silent_for_long_is_not() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let received = |two: f64, three: f64| counted([(2, two), (3, three)], []);
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
    fn the_word_of_a_leader_that_does_not_answer_is_good_for_three_intervals() {
        let (begun, interval) = (Instant::now(), Duration::from_secs(10));
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let looks = |seconds: u64| {
            let first = Heard::update(None, 1, counted([(2, 100.0)], []), begun);
            let second = Heard::update(Some(first), 1, counted([(2, 100.0)], []), at(10));
            Heard::kept(Some(second), interval, at(seconds)).map(|heard| heard.members())
        };
        assert_eq!(looks(40), Some(Some([].into())), "it does not hear the other one");
        assert_eq!(looks(41), None, "whether it does by now is not known");
    }

    #[test]
    fn a_new_leader_is_listened_to_before_it_is_believed() {
        let now = Instant::now();
        let received = |two: f64| counted([(2, two)], []);
        let first = Heard::update(None, 1, received(100.0), now);
        let heard = Heard::update(Some(first), 1, received(101.0), now);
        let other = Heard::update(Some(heard), 3, received(7.0), now);
        assert_eq!(other.members(), Some([2].into()), "what was known stays until it is known better");
        let silent = Heard::update(Some(other), 3, received(7.0), now + SILENCE);
        assert_eq!(silent.members(), Some([].into()));
    }

    /// A member in a crash loop as the leader sees it. The leader is asked every ten seconds for two minutes.
    #[test]
    fn who_crashes_again_and_again_is_not_heard_although_it_sends_something_at_each_start() {
        let begun = Instant::now();
        let listen = |lost: fn(f64) -> f64, of_three: fn(f64) -> f64| {
            let looks = (0..=12_u8).map(f64::from);
            let heard = looks.scan(None, move |before, look| {
                let now = begun + Duration::from_secs_f64(10.0 * look);
                let counted = counted([(2, 100.0 * look), (3, 100.0 * look)], [(2, lost(look)), (3, of_three(look))]);
                *before = Some(Heard::update(before.take(), 1, counted, now));
                Some(before.as_ref().and_then(Heard::members))
            });
            heard.collect::<Vec<_>>()
        };
        let all = Some(BTreeSet::from([2, 3]));
        let crashing = listen(|look| 2.0 * look, |_| 5.0);
        assert_eq!((&crashing[0], &crashing[1]), (&None, &all), "nothing is known of how that goes on");
        assert!(crashing[6..].iter().all(|heard| *heard == Some([3].into())), "within a minute: {crashing:?}");
        // A member that only this controller does not hear.
        assert!(listen(|_| 7.0, |_| 5.0)[1..].iter().all(|heard| *heard == all));
        let losing_all = listen(|look| 2.0 * look, |look| 3.0 * look);
        assert!(losing_all.iter().skip(1).all(|heard| *heard == all), "{losing_all:?}");
        let rebooted = listen(|look| if look > 4.0 { 3.0 } else { 0.0 }, |_| 5.0);
        assert!(rebooted[1..].iter().all(|heard| *heard == all), "{rebooted:?}");
    }
}
