//! When each member of a cluster is probed. Each cluster has one task, which does not end by itself.

use super::cadence::cadence;
use super::cluster::Cluster;
use super::{Probes, Shared, Target};
use crate::observation::probe::{Run, RunKind, TargetKey};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The shortest delay until the probe that is to find a member unhealthy.
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
    let regular = begun + cadence(eager_since.map(|since| now - since), wanted.interval, rand::random());
    // The next probe comes in time to find the member unhealthy.
    let missing =
        run.filter(|run| run.kind == RunKind::Failing).map(|run| wanted.unhealthy_after.checked_sub(run.lasted()));
    match missing.flatten() {
        Some(missing) if !missing.is_zero() => regular.min(now + missing.max(LEAST)),
        _ => regular,
    }
}
