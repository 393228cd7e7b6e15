//! Runs of probes with the same result. A run lasts only as long as there is no gap in time.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Two probes further apart than this many intervals belong to different runs.
const GAP_INTERVALS: u32 = 3;
/// The shortest gap that ends a run. One probe of a silent member with two addresses already takes 10 s.
const LEAST_GAP: Duration = Duration::from_secs(30);

/// How long after the end of one probe the next one may end, with this time between probes, so that both belong to the
/// same run.
#[must_use]
pub fn longest_gap(interval: Duration) -> Duration {
    interval.saturating_mul(GAP_INTERVALS).max(LEAST_GAP)
}

/// The result that the probes of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// All probes found it healthy.
    Healthy,
    /// All probes found it at fault.
    Failing,
    /// Nothing is known: this controller could not ask for too long.
    Unknown,
}

/// A run of probes with the same result.
///
/// Invariant: between `since` and `last` no probe found another result, and no two probes that count are further apart
/// than three intervals (or 30 s, if that is more). Probes with the result Unknown do not count: a few of them leave
/// the run as it is, and a longer time with nothing else ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The result.
    pub kind: RunKind,
    /// When the first probe of the run ended.
    pub since: Timestamp,
    /// When the last probe that counts ended.
    pub last: Timestamp,
}

impl Run {
    /// A run that begins.
    #[must_use]
    pub fn new(kind: RunKind, at: Timestamp) -> Self {
        Self { kind, since: at, last: at }
    }

    /// The run after another probe with the result `kind`, at the time `at`, with `interval` between probes.
    #[must_use]
    pub fn next(self, kind: RunKind, at: Timestamp, interval: Duration) -> Self {
        let without_gap = self.is_current(at, interval);
        match kind {
            _ if kind == self.kind && without_gap => Self { last: at, ..self },
            RunKind::Unknown if without_gap => self,
            // A run of Unknown has no gaps: time without a probe is unknown as well.
            RunKind::Unknown if self.kind == kind => Self { last: at, ..self },
            _ => Self::new(kind, at),
        }
    }

    /// What is known at this time. A run whose last probe is too old says nothing.
    #[must_use]
    pub fn kind_at(&self, now: Timestamp, interval: Duration) -> RunKind {
        if self.is_current(now, interval) { self.kind } else { RunKind::Unknown }
    }

    /// The same run, counted from `from` on only.
    #[must_use]
    pub fn counted_from(self, from: Timestamp) -> Self {
        Self { since: self.since.max(from), ..self }
    }

    /// How long the run has lasted, from its first probe to its last.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        Duration::try_from(self.last.duration_since(self.since)).unwrap_or_default()
    }

    /// Whether the member has been failing for at least this long, without gaps.
    #[must_use]
    pub fn has_failed_for(&self, long: Duration, now: Timestamp, interval: Duration) -> bool {
        self.kind_at(now, interval) == RunKind::Failing && self.lasted() >= long
    }

    fn is_current(&self, at: Timestamp, interval: Duration) -> bool {
        // A clock that is set back by as much makes a gap as well: what happened in between is not known.
        let gap = SignedDuration::try_from(longest_gap(interval));
        at.duration_since(self.last).abs() <= gap.unwrap_or(SignedDuration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunKind::{Failing, Healthy, Unknown};
    use proptest::prelude::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn run(probes: &[(i64, RunKind)]) -> Run {
        let mut probes = probes.iter();
        let (second, kind) = probes.next().unwrap();
        probes.fold(Run::new(*kind, at(*second)), |run, (second, kind)| run.next(*kind, at(*second), INTERVAL))
    }

    #[test]
    fn a_run_is_counted_without_gaps() {
        type Case<'a> = (&'a str, &'a [(i64, RunKind)], (RunKind, i64, i64));
        let cases: &[Case] = &[
            ("steady", &[(0, Failing), (10, Failing), (20, Failing)], (Failing, 0, 20)),
            ("a success ends it", &[(0, Failing), (10, Healthy), (20, Failing)], (Failing, 20, 20)),
            ("two probes were late", &[(0, Failing), (30, Failing)], (Failing, 0, 30)),
            ("ten minutes of pause", &[(0, Failing), (600, Failing)], (Failing, 600, 600)),
            ("our fault, for a moment", &[(0, Failing), (10, Unknown), (20, Failing)], (Failing, 0, 20)),
            ("our fault, just now", &[(0, Failing), (10, Unknown)], (Failing, 0, 0)),
            ("our fault, too long", &[(0, Failing), (20, Unknown), (31, Failing)], (Failing, 31, 31)),
            ("our fault, still", &[(0, Healthy), (20, Unknown), (40, Unknown)], (Unknown, 40, 40)),
            ("never known", &[(0, Unknown), (600, Unknown)], (Unknown, 0, 600)),
            ("known at last", &[(0, Unknown), (10, Failing)], (Failing, 10, 10)),
            ("the clock is set back an hour", &[(4000, Failing), (400, Failing)], (Failing, 400, 400)),
            ("the clock is set back a second", &[(4000, Failing), (3999, Failing)], (Failing, 4000, 3999)),
        ];
        for (what, probes, (kind, since, last)) in cases {
            assert_eq!(run(probes), Run { kind: *kind, since: at(*since), last: at(*last) }, "{what}");
        }
        assert_eq!(run(&[(4000, Failing), (3999, Failing)]).lasted(), Duration::ZERO);
    }

    #[test]
    fn a_verdict_takes_the_whole_time_and_a_probe_that_is_recent() {
        let minute = Duration::from_secs(60);
        let failed = |run: Run, now| run.has_failed_for(minute, at(now), INTERVAL);
        let long = run(&[(0, Failing), (20, Failing), (40, Failing), (60, Failing)]);
        assert!(failed(long, 60));
        assert!(!failed(long, 91), "the prober has stopped: nothing is known");
        assert!(!failed(run(&[(0, Failing), (20, Failing), (40, Failing)]), 69), "what was not probed does not count");
        assert!(!failed(run(&[(0, Healthy), (20, Healthy), (40, Healthy), (60, Healthy)]), 60));
    }

    #[test]
    fn what_was_before_does_not_count() {
        let run = run(&[(0, Failing), (20, Failing), (40, Failing), (60, Failing)]);
        let lasted = |from| run.counted_from(at(from)).lasted().as_secs();
        assert_eq!((lasted(-10), lasted(25), lasted(60), lasted(70)), (60, 35, 0, 0));
    }

    #[test]
    fn short_intervals_leave_time_for_probes_that_wait() {
        let second = Duration::from_secs(1);
        let run = Run::new(Failing, at(0)).next(Failing, at(12), second);
        assert_eq!(run.lasted(), Duration::from_secs(12));
    }

    fn kinds() -> impl Strategy<Value = RunKind> {
        prop_oneof![Just(Healthy), Just(Failing), Just(Unknown)]
    }

    proptest! {
        /// A failing run is true to the history: failing probes at its beginning and its end, no healthy probe and no
        /// gap in between.
        #[test]
        fn a_failing_run_is_true_to_the_history(steps in prop::collection::vec((0_i64..50, kinds()), 1..40)) {
            let mut second = 0;
            let history: Vec<(i64, RunKind)> = steps.into_iter().map(|(step, kind)| { second += step; (second, kind) }).collect();
            let run = run(&history);
            if run.kind == Failing {
                let during: Vec<&(i64, RunKind)> = history.iter()
                    .filter(|(second, _)| (run.since..=run.last).contains(&at(*second))).collect();
                let failing: Vec<i64> = during.iter().filter(|(_, kind)| *kind == Failing).map(|(second, _)| *second).collect();
                prop_assert_eq!(at(failing[0]), run.since);
                prop_assert_eq!(at(*failing.last().unwrap()), run.last);
                prop_assert!(failing.windows(2).all(|pair| pair[1] - pair[0] <= 30));
                let inside = during.iter().filter(|(second, _)| run.since < at(*second) && at(*second) < run.last);
                prop_assert!(inside.into_iter().all(|(_, kind)| *kind != Healthy));
                // No later probe has found anything else.
                prop_assert!(history.iter().all(|(second, kind)| at(*second) <= run.last || *kind == Unknown));
            }
        }

        /// A member that fails throughout is found out: if probes come without a gap, the run becomes as long as any
        /// limit.
        #[test]
        fn a_member_that_fails_throughout_is_found_out(steps in prop::collection::vec(1_i64..=30, 1..60)) {
            let mut second = 0;
            let history: Vec<(i64, RunKind)> = steps.into_iter().map(|step| { second += step; (second, Failing) }).collect();
            let first = history[0].0;
            prop_assert_eq!(run(&history).lasted(), Duration::from_secs(u64::try_from(second - first).unwrap()));
        }
    }
}
