//! How long an interrupted watch waits until it is retried: not long, because meanwhile the record
//! has a gap.

use kube::runtime::utils::Backoff;
use std::time::Duration;

/// The same short delay after every failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(250))
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}
