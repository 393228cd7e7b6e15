//! The commands: each reads, and prints what the pure part makes of it.

pub mod complete;
pub mod completion;
pub mod plan;
pub mod rollout;
pub mod status;
pub mod watch;
pub mod why;

use std::io::{ErrorKind, Write, stdout};

/// Prints lines. A reader that goes away, as `head` does, is not an error.
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
