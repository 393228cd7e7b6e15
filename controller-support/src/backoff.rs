//! How long an interrupted watch stays down.

use kube::runtime::utils::Backoff;
use std::time::Duration;

/// The first and the longest delay. kube's default goes up to 30 s, like client-go's, which protects an API server with
/// thousands of watches. We have a dozen, and while one is down, the controllers act on stale objects. An API server
/// that comes back often ends a watch a second time, because it no longer has the resource version that the watch asks
/// for.
const DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// Delays of a watch. They double with every failure, and start from the beginning after an event.
#[derive(Clone, Debug, Default)]
pub struct WatchBackoff {
    failures: u32,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = DELAYS.0.saturating_mul(2_u32.saturating_pow(self.failures)).min(DELAYS.1);
        self.failures = self.failures.saturating_add(1);
        Some(delay)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_outage_does_not_keep_a_watch_down_for_long() {
        let mut backoff = WatchBackoff::default();
        let delays: Vec<u128> = backoff.by_ref().take(40).map(|delay| delay.as_millis()).collect();
        assert_eq!(&delays[..5], [500, 1000, 2000, 4000, 4000]);
        assert_eq!(delays[39], 4000);
        backoff.reset();
        assert_eq!(backoff.next(), Some(DELAYS.0));
    }
}
