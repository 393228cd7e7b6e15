//! The commands: each reads, and prints what the pure part makes of it.

pub mod complete;
pub mod completion;
pub mod doctor;
pub mod logs;
pub mod moving;
pub mod plan;
pub mod report;
pub mod rollout;
pub mod status;
pub mod watch;
pub mod why;

use anyhow::Context;
use std::io::{ErrorKind, Read, Write, stdin, stdout};
use std::path::Path;

/// Prints lines. It is not an error if the reader closes the pipe, as `head` does.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn print(lines: &[String]) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let written = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// The text of a file, or of the standard input for `-`.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        stdin().read_to_string(&mut text).context("read the standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
