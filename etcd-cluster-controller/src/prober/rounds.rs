//! When each member of a cluster is probed. Each cluster has one task, which does not end by itself.

use super::cadence::cadence;
use super::cluster::Cluster;
use super::{Probes, Shared, Target};
use crate::observation::probe::{Run, RunKind, TargetKey, longest_gap};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The shortest delay until the probe that is to find a member unhealthy, and how long after the time has passed it is
/// to end.
const LEAST: Duration = Duration::from_millis(100);

/// A job that is done again and again, and never twice at the same time.
#[derive(Clone, Copy)]
struct Turn {
    due: Instant,
    running: bool,
    /// The job is due again as soon as it ends.
    again: bool,
}

impl Turn {
    fn new(now: Instant) -> Self {
        Self { due: now, running: false, again: false }
    }

    fn hurry(&mut self, now: Instant) {
        self.again |= self.running;
        self.due = self.due.min(now);
    }

    /// Begins the job if it is due and not running. Returns whether it begins.
    fn begin(&mut self, now: Instant) -> bool {
        let begin = !self.running && self.due <= now;
        self.running |= begin;
        begin
    }

    fn end(&mut self, next: Instant, now: Instant) {
        let again = std::mem::take(&mut self.again);
        self.running = false;
        self.due = if again { now } else { next };
    }
}

/// The state of one target.
struct Seat {
    target: Target,
    turn: Turn,
    eager_since: Option<Instant>,
}

enum Ended {
    Probe { key: TargetKey, begun: Instant, news: bool, run: Option<Run> },
    List { begun: Instant, news: bool },
}

/// Probes the members of one cluster, until the cluster is dropped.
pub(super) async fn run(cluster: Arc<Cluster>, shared: Arc<Shared>) {
    let mut changes = cluster.subscribe();
    let mut wanted = changes.borrow_and_update().clone();
    let mut seats: BTreeMap<TargetKey, Seat> = BTreeMap::new();
    let mut list = Turn::new(Instant::now());
    follow(&mut seats, &wanted);
    let mut running: FuturesUnordered<BoxFuture<'_, Ended>> = FuturesUnordered::new();
    let (cluster, shared) = (&*cluster, &*shared);
    loop {
        let begun = Instant::now();
        for (key, seat) in &mut seats {
            if seat.turn.begin(begun) {
                let (key, target, wanted) = (key.clone(), seat.target.clone(), wanted.clone());
                let probe = async move {
                    let (news, run) = cluster.probe(shared, &shared.rounds, &wanted, &target).await;
                    Ended::Probe { key, begun, news, run }
                };
                running.push(probe.boxed());
            }
        }
        if list.begin(begun) {
            let wanted = wanted.clone();
            let read = async move {
                let news = cluster.read_list(shared, &shared.rounds, &wanted).await;
                Ended::List { begun, news }
            };
            running.push(read.boxed());
        }
        let turns = seats.values().map(|seat| &seat.turn).chain([&list]);
        let next = turns.filter(|turn| !turn.running).map(|turn| turn.due).min();
        let idle = async {
            match next {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                let before = std::mem::replace(&mut wanted, changes.borrow_and_update().clone());
                follow(&mut seats, &wanted);
                let now = Instant::now();
                if (&before.ca, before.cluster_id) != (&wanted.ca, wanted.cluster_id) {
                    seats.values_mut().for_each(|seat| seat.turn.hurry(now));
                }
                list.hurry(now);
            }
            Some(ended) = running.next() => {
                let now = Instant::now();
                match ended {
                    Ended::Probe { key, begun, news, run } => {
                        if let Some(seat) = seats.get_mut(&key) {
                            seat.turn.end(next_probe(seat.eager_since, &wanted, run, begun, now), now);
                        }
                        if news {
                            list.hurry(now);
                        }
                    }
                    Ended::List { begun, news } => {
                        let eager = seats.values().filter_map(|seat| seat.eager_since).max();
                        list.end(begun + cadence(eager.map(|since| now - since), wanted.interval, rand::random()), now);
                        // So that a member that was added or promoted is probed immediately.
                        if news {
                            seats.values_mut().for_each(|seat| seat.turn.hurry(now));
                        }
                    }
                }
            }
            () = idle => {}
        }
    }
}

/// Follows a change of the targets: a target that is new or has changed is due now.
fn follow(seats: &mut BTreeMap<TargetKey, Seat>, wanted: &Probes) {
    let now = Instant::now();
    seats.retain(|key, _| wanted.targets.iter().any(|target| target.key == *key));
    for target in &wanted.targets {
        let new = || Seat { target: target.clone(), turn: Turn::new(now), eager_since: None };
        let seat = seats.entry(target.key.clone()).or_insert_with(new);
        seat.eager_since = target.eager.then(|| seat.eager_since.unwrap_or(now));
        if seat.target != *target {
            seat.target = target.clone();
            seat.turn.hurry(now);
        }
    }
}

fn next_probe(
    eager_since: Option<Instant>,
    wanted: &Probes,
    run: Option<Run>,
    begun: Instant,
    now: Instant,
) -> Instant {
    let interval = cadence(eager_since.map(|since| now - since), wanted.interval, rand::random());
    let regular = (begun + interval).max(now);
    let failing = run.filter(|run| run.kind == RunKind::Failing);
    let missing = failing.and_then(|run| wanted.unhealthy_after.checked_sub(run.lasted()));
    let Some(missing) = missing.filter(|missing| !missing.is_zero()) else { return regular };
    // A probe of a member that does not answer takes seconds, and counts when it ends. So the one that finds the member
    // unhealthy begins that much earlier, and no other one may still be running then.
    let took = now - begun;
    let last = (now + (missing + LEAST).saturating_sub(took)).max(now + LEAST);
    // To wait for long would end the run.
    let is_gap = last + took > now + longest_gap(wanted.interval);
    if regular + took <= last || is_gap {
        regular
    } else if regular < last && now + LEAST + took <= last {
        last - took
    } else {
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::{SignedDuration, Timestamp};

    /// How long after the time has passed a member is found unhealthy, if each probe takes so long and fails. Also the
    /// longest time from the beginning of one probe to the next.
    fn found(wanted: &Probes, took: Duration) -> (Duration, Duration) {
        let (first, clock) = (Instant::now(), Timestamp::UNIX_EPOCH);
        let at = |moment: Instant| clock + SignedDuration::try_from(moment - first).unwrap();
        let (mut begun, mut longest, mut failing) = (first, Duration::ZERO, None);
        loop {
            let ended = begun + took;
            let run: Run = failing.map_or_else(
                || Run::new(RunKind::Failing, at(ended)),
                |run: Run| run.next(RunKind::Failing, at(ended), wanted.interval),
            );
            if run.lasted() >= wanted.unhealthy_after {
                return (run.lasted() - wanted.unhealthy_after, longest);
            }
            failing = Some(run);
            let next = next_probe(None, wanted, failing, begun, ended);
            assert!(next >= ended, "two probes at the same time");
            longest = longest.max(next - begun);
            begun = next;
        }
    }

    #[test]
    fn a_member_is_found_unhealthy_when_its_time_is_over() {
        let seconds = Duration::from_secs;
        for (interval, unhealthy_after) in [(1, 4), (1, 60), (10, 60), (10, 61), (60, 60)] {
            let (interval, unhealthy_after, grace) = (seconds(interval), seconds(unhealthy_after), seconds(600));
            let wanted = Probes { ca: None, cluster_id: None, targets: Vec::new(), interval, unhealthy_after, grace };
            for took in [Duration::ZERO, Duration::from_millis(20), seconds(3), seconds(5), seconds(21)] {
                // Each time by other chances.
                for _ in 0..200 {
                    let (late, longest) = found(&wanted, took);
                    // A second probe that takes longer than the time that is left comes too late in any case. If one
                    // takes nearly as long as what ends a run, nothing waits.
                    let is_slow = 2 * took > longest_gap(interval);
                    let possible = if is_slow { took } else { took.saturating_sub(unhealthy_after) };
                    assert!(late <= possible + 2 * LEAST, "every {interval:?}, a probe takes {took:?}: {late:?} late");
                    assert!(longest <= interval.max(2 * took + 2 * LEAST), "{longest:?} without a probe");
                }
            }
        }
    }
}
