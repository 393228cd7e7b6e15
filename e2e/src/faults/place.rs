//! A place in a story: one of our writes, and the fault that happens to it.

use super::gate::{Call, Fault, Rule};
use anyhow::{Context, Error, Result, bail};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The fault at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The manager is killed, and the write never reaches the server.
    KilledBefore,
    /// The write succeeds, and the manager is killed before it gets the answer.
    KilledAfter,
    /// The write succeeds, and its answer is lost.
    AnswerLost,
    /// The write is answered with this HTTP status, or code of gRPC, and never reaches the server.
    Answered(u16),
}

impl How {
    /// What can happen to any process.
    pub const DEATHS: [Self; 3] = [Self::KilledBefore, Self::KilledAfter, Self::AnswerLost];
    /// What an API server answers now and then.
    pub const REFUSALS: [Self; 4] =
        [Self::Answered(403), Self::Answered(409), Self::Answered(429), Self::Answered(500)];
    /// The gRPC codes of etcd for a temporary failure: `Unavailable`, `DeadlineExceeded`.
    pub const FAILURES: [Self; 2] = [Self::Answered(14), Self::Answered(4)];

    fn fault(self) -> Fault {
        match self {
            Self::KilledBefore => Fault::KillBefore,
            Self::KilledAfter => Fault::KillAfter,
            Self::AnswerLost => Fault::LoseAnswer,
            Self::Answered(code) => Fault::Answer(code),
        }
    }
}

/// One of our writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// The one with this number, from 1.
    Number(usize),
    /// The one with this number, from 1, among the writes of this name (`create secrets demo-etcd`).
    Like(String, usize),
}

/// One of our writes, and the fault that happens to it. Written as `17:answer-lost`, `create secrets
/// demo-etcd:killed-after`, or `patch machines demo-etcd-0#2:killed-after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which write.
    pub at: At,
    /// The fault.
    pub how: How,
}

impl Place {
    /// Each of `writes` writes with each of these faults.
    #[must_use]
    pub fn all(writes: usize, ways: &[How]) -> Vec<Self> {
        (1..=writes).flat_map(|number| ways.iter().map(move |how| Self::number(number, *how))).collect()
    }

    /// Every `every`-th of `writes` writes, with the faults taking turns. `skipped` decides with which of the first
    /// writes the sample begins, and with which fault.
    #[must_use]
    pub fn sample(writes: usize, ways: &[How], every: usize, skipped: usize) -> Vec<Self> {
        let numbers = (1 + skipped % every..=writes).step_by(every);
        let ways = ways.iter().cycle().skip(skipped / every);
        numbers.zip(ways).map(|(number, how)| Self::number(number, *how)).collect()
    }

    fn number(number: usize, how: How) -> Self {
        Self { at: At::Number(number), how }
    }

    /// The rule that lets the fault happen. The first `earlier` writes do not count. If the write is refused, a fault
    /// after it happens to the next one, or the next of its name.
    #[must_use]
    pub fn rule<C: Call>(&self, earlier: usize) -> Rule<C> {
        let fault = self.how.fault();
        match self.at.clone() {
            At::Number(number) => Rule::at_write(earlier + number, fault),
            At::Like(write, number) => {
                let seen = AtomicUsize::new(0);
                let is_it = move || seen.fetch_add(1, Ordering::Relaxed) + 1 >= number;
                Rule::at_call(move |call: &C| call.is_write() && call.name() == write && is_it(), fault)
            }
        }
    }

    /// A part of a namespace's name: short, and different from those of the story's other places.
    #[must_use]
    pub fn slug(&self) -> String {
        match &self.at {
            At::Number(number) => format!("{number}-{}", self.how),
            At::Like(write, number) => {
                let mut hasher = DefaultHasher::new();
                (write, number).hash(&mut hasher);
                format!("{:x}-{}", hasher.finish(), self.how)
            }
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KilledBefore => formatter.write_str("killed-before"),
            Self::KilledAfter => formatter.write_str("killed-after"),
            Self::AnswerLost => formatter.write_str("answer-lost"),
            Self::Answered(code) => write!(formatter, "answered-{code}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Number(number) => write!(formatter, "{number}:{}", self.how),
            At::Like(write, 1) => write!(formatter, "{write}:{}", self.how),
            At::Like(write, number) => write!(formatter, "{write}#{number}:{}", self.how),
        }
    }
}

impl FromStr for How {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(code) = text.strip_prefix("answered-") {
            return Ok(Self::Answered(code.parse().context("an HTTP status, or a code of gRPC")?));
        }
        match Self::DEATHS.into_iter().find(|how| how.to_string() == text) {
            Some(how) => Ok(how),
            None => bail!("{text} is none of killed-before, killed-after, answer-lost, answered-CODE"),
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (write, how) = text.rsplit_once(':').with_context(|| format!("{text} is not like 17:answer-lost"))?;
        let like = || match write.rsplit_once('#') {
            Some((write, number)) => Ok(At::Like(write.to_owned(), number.parse().context("the number after #")?)),
            None => Ok::<_, Error>(At::Like(write.to_owned(), 1)),
        };
        let at = write.parse().map(At::Number).or_else(|_| like())?;
        Ok(Self { at, how: how.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let mut places = Place::all(2, &[&How::DEATHS[..], &How::REFUSALS[..]].concat());
        for number in [1, 2] {
            places.push(Place { at: At::Like("create secrets demo-etcd".to_owned(), number), how: How::KilledAfter });
        }
        for place in places {
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        }
        assert_eq!(Place::number(17, How::AnswerLost).to_string(), "17:answer-lost");
        assert!("17".parse::<Place>().is_err() && "17:eaten".parse::<Place>().is_err());
    }

    #[test]
    fn a_sample_has_all_ways() {
        let names = |skipped: usize| -> Vec<String> {
            Place::sample(12, &How::DEATHS, 5, skipped).iter().map(Place::to_string).collect()
        };
        assert_eq!(names(0), ["1:killed-before", "6:killed-after", "11:answer-lost"]);
        assert_eq!(names(7), ["3:killed-after", "8:answer-lost"]);
        let mut all: Vec<String> = (0..15).flat_map(names).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 36, "many samples have every place");
        assert_eq!(Place::all(12, &How::DEATHS).len(), 36);
    }
}
