//! A clock that only our manager has, and that jumps: by libfaketime, which stands between a program and what tells it
//! the time. How much time passes stays right, as it does when somebody sets a computer's clock.

use super::Bed;
use crate::process::output;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Where distributions have it, below a directory for each architecture.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";
/// How much what `date` says may differ from what is wanted, in seconds: it is asked twice.
const TWO_LOOKS: i64 = 3;

/// A clock that is set by a file.
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// One that is right.
    ///
    /// # Errors
    /// When libfaketime is not installed, or shows no other time: then nothing would be shown.
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

    /// Sets it to so many seconds ahead of the computer's, or behind. The manager sees that within a second.
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

    /// What gives a program this clock. Only the time of day is another one.
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
    /// As [`Bed::start_manager`], with a clock of its own.
    ///
    /// # Errors
    /// As there, and when the manager has not got the clock.
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

/// What time it is by this command.
fn seconds(date: &mut Command) -> Result<i64> {
    output(date.arg("+%s"))?.trim().parse().context("date does not say a time")
}
