//! When to probe again. Probes are not a load on the API server.

use std::time::Duration;

/// How often an eager target is probed at first, and for how long.
const EAGER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(120));
/// How often an eager target is probed after that.
const PATIENT: Duration = Duration::from_secs(2);

/// Time from the beginning of one probe to the next. `eager_for`: how long the target has been eager. `jitter`, from 0
/// to 1, shortens the interval of settled members by up to a fifth, so that clusters that began together drift apart.
pub(super) fn cadence(eager_for: Option<Duration>, interval: Duration, jitter: f64) -> Duration {
    match eager_for {
        Some(eager) if eager < EAGER.1 => EAGER.0.min(interval),
        Some(_) => PATIENT.min(interval),
        None => interval.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 5.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eagerness_wears_off_and_settled_members_drift_apart() {
        let (seconds, interval) = (Duration::from_secs, Duration::from_secs(10));
        assert_eq!(cadence(Some(seconds(0)), interval, 1.0), Duration::from_millis(100));
        assert_eq!(cadence(Some(seconds(119)), interval, 0.0), Duration::from_millis(100));
        assert_eq!(cadence(Some(seconds(120)), interval, 0.0), seconds(2));
        assert_eq!(cadence(Some(seconds(120)), seconds(1), 0.0), seconds(1));
        assert_eq!(cadence(None, interval, 0.0), interval);
        assert_eq!(cadence(None, interval, 1.0), seconds(8));
    }
}
