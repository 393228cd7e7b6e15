//! How long a watch that was interrupted stays down.

use kube::runtime::utils::Backoff;
use std::time::Duration;

/// First delay and longest. kube's own goes up to half a minute, as client-go's does, which is kind to an API server with
/// thousands of watches. Ours are a dozen, and as long as one is down the controllers act on what was; an API server
/// that comes back often ends them once more, because it has forgotten the version that they ask for.
const DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

/// Delays of a watch: each twice the one before, from the beginning again once something has come.
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
