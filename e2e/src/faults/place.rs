//! Places of a story: one of our writes, and what happens to it.

use super::gate::Fault;
use anyhow::{Context, Error, Result, bail};
use std::fmt;
use std::str::FromStr;

/// What happens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The manager is killed, and the write never reaches the server.
    KilledBefore,
    /// The write is done, and the manager is killed before it hears of it.
    KilledAfter,
    /// The write is done, and its answer is lost.
    AnswerLost,
    /// The write is answered with this HTTP status, and never reaches the server.
    Answered(u16),
}

impl How {
    /// What happens to a process in its life.
    pub const DEATHS: [Self; 3] = [Self::KilledBefore, Self::KilledAfter, Self::AnswerLost];
    /// What an API server says now and then.
    pub const REFUSALS: [Self; 3] = [Self::Answered(409), Self::Answered(429), Self::Answered(500)];

    /// As what is done to a request.
    #[must_use]
    pub fn fault(self) -> Fault {
        match self {
            Self::KilledBefore => Fault::KillBefore,
            Self::KilledAfter => Fault::KillAfter,
            Self::AnswerLost => Fault::LoseAnswer,
            Self::Answered(code) => Fault::Answer(code),
        }
    }
}

/// One of our writes, and what happens to it. Written as `17:answer-lost`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the write, from 1.
    pub write: usize,
    /// What happens to it.
    pub how: How,
}

impl Place {
    /// Each of `writes` writes in each of these ways.
    #[must_use]
    pub fn all(writes: usize, ways: &[How]) -> Vec<Self> {
        (1..=writes).flat_map(|write| ways.iter().map(move |how| Self { write, how: *how })).collect()
    }

    /// Every `every`-th of `writes` writes, from the `first` one on, with the ways taking turns.
    #[must_use]
    pub fn sample(writes: usize, ways: &[How], first: usize, every: usize) -> Vec<Self> {
        let writes = (first..=writes).step_by(every);
        writes.zip(ways.iter().cycle()).map(|(write, how)| Self { write, how: *how }).collect()
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
        write!(formatter, "{}:{}", self.write, self.how)
    }
}

impl FromStr for How {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(code) = text.strip_prefix("answered-") {
            return Ok(Self::Answered(code.parse().context("an HTTP status")?));
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
        let (write, how) = text.split_once(':').with_context(|| format!("{text} is not like 17:answer-lost"))?;
        Ok(Self { write: write.parse().with_context(|| format!("number of a write: {write}"))?, how: how.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let ways = [How::DEATHS, How::REFUSALS].concat();
        for place in Place::all(2, &ways) {
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        }
        assert_eq!(Place { write: 17, how: How::AnswerLost }.to_string(), "17:answer-lost");
        assert!("17".parse::<Place>().is_err() && "17:eaten".parse::<Place>().is_err());
    }

    #[test]
    fn a_sample_has_all_ways() {
        let names: Vec<String> = Place::sample(12, &How::DEATHS, 2, 4).iter().map(Place::to_string).collect();
        assert_eq!(names, ["2:killed-before", "6:killed-after", "10:answer-lost"]);
        assert_eq!(Place::all(12, &How::DEATHS).len(), 36);
    }
}
