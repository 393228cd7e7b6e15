//! The figures of a history.

use crate::percentile::percentile;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What the figures need of one request. Times are nanoseconds since the history began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The number of the client.
    pub(super) client: usize,
    pub(super) is_read: bool,
    /// Whether it belongs to the second try of a write.
    pub(super) again: bool,
    pub(super) call: i64,
    pub(super) returned: i64,
    pub(super) fate: Fate,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Ok,
    /// The server refused it because another write came first. This is an answer, not a failure.
    Refused,
    Failed,
    Unknown,
}

impl Fate {
    /// Whether the client got an answer.
    fn is_answered(self) -> bool {
        matches!(self, Self::Ok | Self::Refused)
    }
}

/// The figures of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Reads that were answered.
    pub reads: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// Writes that were refused because another one came before.
    pub refused: usize,
    /// Other writes that certainly did not happen.
    pub failed: usize,
    /// Writes that may or may not have happened.
    pub unknown: usize,
    /// Second tries of failed and unknown writes that were not answered either. A client that retries once would have
    /// to report these to its user.
    pub failed_twice: usize,
    /// The longest time without an acknowledged write, from the first request to the end of the last one, or to the end
    /// of the load if that is earlier.
    pub longest_stall: Duration,
    /// The longest time that any one client went without an answer to a read or a write, between the same moments. A
    /// stall of one client does not show in `longest_stall` while others go on.
    pub longest_of_one: Duration,
    /// 99 % of the acknowledged writes took no longer than this.
    pub p99: Duration,
}

impl Figures {
    /// The figures of these requests. Clients make no new requests from `ended` on, so a last request without an answer
    /// is not a stall.
    pub(super) fn of(samples: impl IntoIterator<Item = Sample>, ended: i64) -> Self {
        let samples: Vec<Sample> = samples.into_iter().collect();
        let count = |is_read: bool, fate: Fate| {
            samples.iter().filter(|sample| sample.is_read == is_read && sample.fate == fate).count()
        };
        Self {
            reads: count(true, Fate::Ok),
            writes: count(false, Fate::Ok),
            refused: count(false, Fate::Refused),
            failed: count(false, Fate::Failed),
            unknown: count(false, Fate::Unknown),
            failed_twice: samples.iter().filter(|sample| sample.again && !sample.fate.is_answered()).count(),
            longest_stall: longest_stall(&samples, ended),
            longest_of_one: longest_of_one(&samples, ended),
            p99: p99(&samples),
        }
    }
}

fn acknowledged(samples: &[Sample]) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(|sample| !sample.is_read && sample.fate == Fate::Ok)
}

fn longest_stall(samples: &[Sample], ended: i64) -> Duration {
    longest_gap(samples, ended, acknowledged(samples))
}

fn longest_of_one(samples: &[Sample], ended: i64) -> Duration {
    let mut by_client: BTreeMap<usize, Vec<Sample>> = BTreeMap::new();
    for sample in samples {
        by_client.entry(sample.client).or_default().push(*sample);
    }
    let of_one = |its: &Vec<Sample>| longest_gap(its, ended, its.iter().filter(|sample| sample.fate.is_answered()));
    by_client.values().map(of_one).max().unwrap_or_default()
}

/// The longest time without one of these answers, from the first request of `samples` to the end of the last one, or to
/// `ended` if that is earlier.
fn longest_gap<'a>(samples: &[Sample], ended: i64, answers: impl Iterator<Item = &'a Sample>) -> Duration {
    let begin = samples.iter().map(|sample| sample.call).min().unwrap_or_default();
    let end = samples.iter().map(|sample| sample.returned).max().unwrap_or_default().min(ended);
    let mut times: Vec<i64> = answers.map(|answer| answer.returned.min(end)).collect();
    times.extend([begin, end]);
    times.sort_unstable();
    nanoseconds(times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default())
}

fn p99(samples: &[Sample]) -> Duration {
    let mut times: Vec<i64> = acknowledged(samples).map(|write| write.returned - write.call).collect();
    times.sort_unstable();
    nanoseconds(percentile(&times, 99).unwrap_or_default())
}

fn nanoseconds(time: i64) -> Duration {
    Duration::from_nanos(u64::try_from(time).unwrap_or_default())
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, writes, refused, failed, unknown, failed_twice, longest_stall, longest_of_one, p99 } = self;
        write!(
            f,
            "{writes} writes ({failed} failed, {unknown} unknown, {failed_twice} of them twice; {refused} refused), \
             {reads} reads; longest stall {:.1} s, of one client {:.1} s, p99 {:.1} ms",
            longest_stall.as_secs_f64(),
            longest_of_one.as_secs_f64(),
            p99.as_secs_f64() * 1000.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn write(call: i64, returned: i64, fate: Fate) -> Sample {
        Sample { client: 0, is_read: false, again: false, call, returned, fate }
    }

    #[test]
    fn the_stall_at_the_end_counts_and_failed_writes_end_none() {
        let samples = [
            write(0, SECOND, Fate::Ok),
            write(2 * SECOND, 3 * SECOND, Fate::Ok),
            write(3 * SECOND, 4 * SECOND, Fate::Failed),
            write(4 * SECOND, 9 * SECOND, Fate::Unknown),
        ];
        let figures = Figures::of(samples, i64::MAX);
        assert_eq!((figures.writes, figures.failed, figures.unknown), (2, 1, 1));
        assert_eq!(figures.longest_stall, Duration::from_secs(6));
        assert_eq!(figures.p99, Duration::from_secs(1));
        assert_eq!(Figures::of(samples, 7 * SECOND).longest_stall, Duration::from_secs(4), "then the load ended");
    }

    #[test]
    fn a_second_try_without_an_answer_has_failed_twice() {
        let again = |fate| Sample { again: true, ..write(0, SECOND, fate) };
        let first = write(0, SECOND, Fate::Failed);
        let figures =
            Figures::of([first, again(Fate::Ok), first, again(Fate::Failed), first, again(Fate::Unknown)], i64::MAX);
        assert_eq!((figures.writes, figures.failed, figures.unknown, figures.failed_twice), (1, 4, 1, 2));
    }

    #[test]
    fn what_came_too_late_has_not_failed() {
        let refused = write(0, SECOND, Fate::Refused);
        let second = Sample { again: true, ..refused };
        let figures = Figures::of([write(0, SECOND, Fate::Unknown), refused, second], i64::MAX);
        assert_eq!((figures.refused, figures.failed, figures.unknown, figures.failed_twice), (2, 0, 1, 0));
    }

    #[test]
    fn reads_end_no_stall() {
        let read = Sample { is_read: true, ..write(0, 5 * SECOND, Fate::Ok) };
        let figures = Figures::of([write(0, SECOND, Fate::Ok), read], i64::MAX);
        assert_eq!((figures.reads, figures.longest_stall), (1, Duration::from_secs(4)));
    }

    #[test]
    fn the_stall_of_one_client_shows_beside_others() {
        let other = (0..10).map(|second| write(second * SECOND, (second + 1) * SECOND, Fate::Ok));
        let of_one = |from, to, fate| Sample { client: 1, ..write(from * SECOND, to * SECOND, fate) };
        let slow = [of_one(0, 1, Fate::Ok), of_one(1, 4, Fate::Unknown), of_one(4, 5, Fate::Refused)];
        let figures = Figures::of(other.chain(slow), i64::MAX);
        assert_eq!((figures.longest_stall, figures.longest_of_one), (Duration::from_secs(1), Duration::from_secs(4)));
    }

    #[test]
    fn one_slow_write_of_a_hundred_is_beyond_the_99th() {
        let mut samples = vec![write(0, SECOND, Fate::Ok); 99];
        samples.push(write(0, 8 * SECOND, Fate::Ok));
        assert_eq!(Figures::of(samples.clone(), i64::MAX).p99, Duration::from_secs(1));
        samples.push(write(0, 8 * SECOND, Fate::Ok));
        assert_eq!(Figures::of(samples, i64::MAX).p99, Duration::from_secs(8));
    }

    #[test]
    fn nothing_at_all_has_no_figures() {
        assert_eq!(Figures::of([], i64::MAX), Figures::default());
    }
}
