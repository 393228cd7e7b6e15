//! Limits that the kernel sets for this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files as far as this process may raise it. Every member that is probed needs a connection.
/// Container runtimes start processes with a soft limit of 1024, which is for programs that use select(2).
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => tracing::info!(before = ?limit.current, now = ?limit.maximum, "open files"),
        Err(error) => tracing::warn!(%error, limit = ?limit.current, "the limit of open files could not be raised"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = getrlimit(Resource::Nofile);
        let low = limit.maximum.map_or(1024, |maximum| maximum.min(1024));
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), maximum: limit.maximum }).unwrap();
        raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }
}
