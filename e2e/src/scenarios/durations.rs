//! How long each scenario took.

use anyhow::Result;
use libtest_mimic::Trial;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The scenarios of one run, in the order in which they ended.
#[derive(Debug, Default)]
pub struct Durations(Mutex<Vec<(String, Duration)>>);

impl Durations {
    /// One test for `libtest_mimic`, which records how long it took.
    pub fn trial(self: &Arc<Self>, name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
        let (durations, test) = (self.clone(), name.to_owned());
        Trial::test(name, move || {
            let begun = Instant::now();
            let ended = run();
            durations.add(&test, begun.elapsed());
            ended.map_err(|error| format!("{error:#}").into())
        })
    }

    /// Records that a scenario has ended, passed or not.
    pub fn add(&self, scenario: &str, took: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((scenario.to_owned(), took));
    }
}

/// One line for each, the longest first: these are where time can be saved.
impl fmt::Display for Durations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        let total: Duration = all.iter().map(|(_, took)| *took).sum();
        writeln!(out, "seconds of each scenario, {:.0} in all:", total.as_secs_f32())?;
        all.iter().try_for_each(|(name, took)| writeln!(out, "{:8.1}  {name}", took.as_secs_f32()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_comes_first() {
        let durations = Durations::default();
        durations.add("short", Duration::from_millis(1500));
        durations.add("long", Duration::from_secs(60));
        assert_eq!(durations.to_string(), "seconds of each scenario, 62 in all:\n    60.0  long\n     1.5  short\n");
    }
}
