//! The side that runs scenarios: inside a world.

use super::{SKIPPED, Scenario};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::ExitCode;
use std::sync::PoisonError;

/// The variable that is set in a process that is a lane.
pub(super) const LANE: &str = "CAPE_LANE";

/// Marks the line with which a lane reports the end of a scenario. Nothing that a scenario prints contains it.
const MARK: char = '\u{1e}';

/// How a scenario ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ending {
    /// What went wrong; `None` if it passed.
    pub(super) failure: Option<String>,
    /// Why it cannot show anything here, if it says so.
    pub(super) skipped: Option<String>,
}

impl Ending {
    /// The ending that a line of a lane reports, if it is such a line.
    pub(super) fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.split_once(MARK)?.1).ok()
    }
}

pub(super) fn is_this_process() -> bool {
    std::env::var_os(LANE).is_some()
}

/// Reads the names. They are moved away from standard input, because programs that scenarios start must not read them.
fn names() -> Result<BufReader<File>> {
    let names = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).context("keep standard input")?;
    let nothing = File::open("/dev/null").context("open /dev/null")?;
    rustix::stdio::dup2_stdin(nothing).context("replace standard input")?;
    Ok(BufReader::new(File::from(names)))
}

/// Runs the scenarios whose names arrive, one per line, until there are no more. The exit code says whether all of them
/// passed. If one did not, the world keeps its logs.
pub(super) fn serve<S>(scenarios: &[Scenario<S>], mut shared: S) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for name in names()?.lines() {
        let name = name.context("read the name of a scenario")?;
        let scenario =
            scenarios.iter().find(|scenario| scenario.name == name).context(format!("no scenario {name}"))?;
        // A panic fails only this scenario.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (scenario.run)(&mut shared)));
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some("it panicked; the message is above".to_owned()),
        };
        if failure.is_some() {
            code = ExitCode::FAILURE;
        }
        let skipped = SKIPPED.lock().unwrap_or_else(PoisonError::into_inner).take();
        println!("{MARK}{}", serde_json::to_string(&Ending { failure, skipped })?);
        std::io::stdout().flush().context("answer")?;
    }
    Ok(code)
}
