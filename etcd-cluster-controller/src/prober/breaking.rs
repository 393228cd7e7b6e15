//! Members whose connection to the leader breaks again and again, because their etcd starts, sends a little, and ends.
//!
//! etcd counts in `etcd_network_disconnected_peers_total`, with the labels `Local` and `Remote`, how often a peer that
//! was active became inactive (`peerStatus.deactivate` in `server/etcdserver/api/rafthttp/peer_status.go`, the same in
//! etcd 3.5, 3.6 and 3.7). A peer without a series has never been lost. One restart may be counted several times in a
//! few seconds, because each of a peer's streams notices it by itself (`stream.go`). So the number alone says nothing:
//! what counts is that it goes on rising.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Losses that are further apart than this do not belong together. Losses that belong together have to go on for longer
/// than this, which takes at least three of them.
const STEADY: Duration = Duration::from_secs(30);

/// Losses of the connection to one member that belong together.
#[derive(Debug)]
struct Losses {
    /// When the first was observed.
    since: Instant,
    /// When the latest was observed.
    observed: Instant,
    /// The time of the look before the latest loss was observed. The latest loss came after it.
    after: Instant,
}

/// The losses that are known so far.
#[derive(Debug)]
pub(super) struct Breaking {
    /// Losses that the leader had counted at `looked`, by the member's ID.
    lost: BTreeMap<u64, f64>,
    looked: Instant,
    losses: BTreeMap<u64, Losses>,
}

impl Breaking {
    pub(super) fn new(lost: BTreeMap<u64, f64>, now: Instant) -> Self {
        Self { lost, looked: now, losses: BTreeMap::new() }
    }

    /// Takes over what another leader has counted, as the numbers to compare with from now on.
    pub(super) fn of_another_leader(self, lost: BTreeMap<u64, f64>, now: Instant) -> Self {
        Self { lost, looked: now, ..self }
    }

    /// Takes in what the same leader has counted by now.
    pub(super) fn update(self, lost: BTreeMap<u64, f64>, now: Instant) -> Self {
        let Self { lost: before, looked, mut losses } = self;
        for (id, count) in &lost {
            // A lower number means that the leader itself was restarted.
            if count > before.get(id).unwrap_or(&0.0) {
                let losses = losses.entry(*id).or_insert(Losses { since: now, observed: now, after: looked });
                (losses.observed, losses.after) = (now, looked);
            }
        }
        losses.retain(|_, losses| now.duration_since(losses.observed) <= STEADY);
        Self { lost, looked: now, losses }
    }

    /// Whether the connection to a member breaks again and again.
    pub(super) fn has(&self, id: u64) -> bool {
        self.losses.get(&id).is_some_and(|losses| losses.after.saturating_duration_since(losses.since) > STEADY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a look shows at each of these seconds: the number that was counted. `None`: there is no series.
    type Looks<'a> = &'a [(u64, Option<f64>)];

    fn breaks(looks: Looks) -> bool {
        let begun = Instant::now();
        let lost = |count: Option<f64>| count.map(|count| (2, count)).into_iter().collect();
        let mut looks = looks.iter().map(|(second, count)| (begun + Duration::from_secs(*second), lost(*count)));
        let (first, counted) = looks.next().unwrap();
        looks.fold(Breaking::new(counted, first), |breaking, (now, counted)| breaking.update(counted, now)).has(2)
    }

    #[test]
    fn a_connection_breaks_again_and_again_if_that_goes_on() {
        let cases: &[(&str, Looks, bool)] = &[
            ("one look", &[(0, Some(70.0))], false),
            ("long ago", &[(0, Some(70.0)), (30, Some(70.0)), (60, Some(70.0))], false),
            ("never", &[(0, None), (30, None), (60, None)], false),
            ("a loop", &[(0, None), (10, Some(1.0)), (20, Some(3.0)), (30, Some(4.0)), (51, Some(6.0))], false),
            (
                "a loop that goes on",
                &[(0, None), (10, Some(1.0)), (20, Some(3.0)), (30, Some(4.0)), (41, Some(6.0)), (51, Some(7.0))],
                true,
            ),
            (
                "a slow loop: not every look sees a loss",
                &[
                    (0, None),
                    (10, Some(1.0)),
                    (20, Some(1.0)),
                    (30, Some(2.0)),
                    (40, Some(2.0)),
                    (50, Some(2.0)),
                    (60, Some(3.0)),
                ],
                true,
            ),
            (
                "a loop, seldom looked at",
                &[(0, Some(9.0)), (60, Some(30.0)), (120, Some(50.0)), (180, Some(70.0))],
                true,
            ),
            ("one restart", &[(0, None), (1, Some(1.0)), (2, Some(3.0)), (6, Some(5.0)), (40, Some(5.0))], false),
            ("one restart, in two looks that are far apart", &[(0, None), (60, Some(1.0)), (120, Some(3.0))], false),
            ("a restart, and one more", &[(0, None), (10, Some(2.0)), (20, Some(2.0)), (40, Some(4.0))], false),
            (
                "restarts that have nothing to do with each other",
                &[(0, None), (10, Some(1.0)), (41, Some(1.0)), (50, Some(2.0)), (81, Some(2.0)), (90, Some(3.0))],
                false,
            ),
            (
                "a loop that has ended",
                &[(0, None), (10, Some(1.0)), (30, Some(3.0)), (41, Some(6.0)), (52, Some(8.0)), (83, Some(8.0))],
                false,
            ),
            (
                "it is the leader that starts again and again",
                &[(0, Some(9.0)), (10, Some(3.0)), (20, Some(2.0)), (30, Some(1.0)), (41, None), (52, None)],
                false,
            ),
        ];
        for (what, looks, expected) in cases {
            assert_eq!(breaks(looks), *expected, "{what}");
        }
    }

    #[test]
    fn another_leader_counts_from_what_it_has() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let lost = |count: f64| BTreeMap::from([(2, count)]);
        let counted = |upto: u64| {
            (1..=upto).fold(Breaking::new(lost(0.0), begun), |breaking, look| {
                breaking.update(lost(f64::from(u32::try_from(look).unwrap())), at(10 * look))
            })
        };
        let other = counted(2).of_another_leader(lost(80.0), at(30));
        assert!(!other.update(lost(80.0), at(45)).has(2), "what it had counted before is nothing new");
        let other = counted(6).of_another_leader(lost(80.0), at(70));
        assert!(other.has(2), "what was known stays");
        assert!(!other.update(lost(80.0), at(91)).has(2), "until it is known better");
    }
}
