//! A clock that jumps, for our manager alone. It uses libfaketime, which intercepts the calls by which a program reads
//! the time. Elapsed time stays correct, as it does when a person sets a computer's clock.

use super::Bed;
use crate::process::output;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Where distributions install libfaketime, below a directory for each architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// How far the clock may be from what is wanted, in seconds. Two calls of `date`, one after the other, measure it.
const TWO_LOOKS: i64 = 3;

/// A clock that is set by a file.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A clock that shows the computer's time.
    ///
    /// # Errors
    /// When libfaketime is not installed, or the clock shows another time than the computer's.
    pub fn right(world: &World) -> Result<Self> {
        let directories = fs::read_dir("/usr/lib").context("read /usr/lib")?;
        let mut found = directories.filter_map(|entry| Some(entry.ok()?.path().join(LIBRARY)));
        let library = found
            .find(|library| library.exists())
            .context("libfaketime is not installed (package libfaketime): E2E_FULL=1 hack/setup.sh installs it")?;
        let clock = Self { library, file: world.state("clock")?.join("ahead") };
        clock.jump(0)?;
        Ok(clock)
    }

    /// Sets the clock to `ahead` seconds ahead of the computer's, or behind it if `ahead` is negative. The manager sees
    /// that within a second.
    ///
    /// # Errors
    /// When it shows another time.
    pub fn jump(&self, ahead: i64) -> Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{ahead:+}\n")).context("set the clock")?;
        fs::rename(&new, &self.file).context("set the clock")?;
        let shows = seconds(Command::new("date").envs(self.environment()))? - seconds(&mut Command::new("date"))?;
        ensure!((shows - ahead).abs() <= TWO_LOOKS, "the clock is {shows} s ahead, not {ahead}: nothing is shown");
        Ok(())
    }

    /// The environment variables that give a program this clock. They change only the time of day.
    fn environment(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone()),
            ("FAKETIME_CACHE_DURATION", PathBuf::from("1")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", PathBuf::from("1")),
            ("NO_FAKE_STAT", PathBuf::from("1")),
        ]
    }
}

impl Bed {
    /// Like [`Bed::start_manager`], with this clock.
    ///
    /// # Errors
    /// As there, and when the manager has not loaded libfaketime.
    pub async fn start_manager_with_clock(&mut self, index: usize, clock: &Clock) -> Result<()> {
        let command = self.manager_command(index)?.arg("--leader-elect=false");
        let command = clock.environment().into_iter().fold(command, |command, (name, value)| command.env(name, value));
        self.run_manager(index, command).await?;
        let process = self.manager(index)?.pid().context("the manager has ended")?;
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).context("look into the manager")?;
        ensure!(maps.contains("libfaketime"), "the manager has the computer's clock: nothing is shown");
        Ok(())
    }
}

/// The time that this command prints, in seconds since 1970.
fn seconds(date: &mut Command) -> Result<i64> {
    output(date.arg("+%s"))?.trim().parse().context("date does not say a time")
}
