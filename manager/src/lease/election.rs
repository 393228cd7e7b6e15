//! Who may hold the lease, and when it is lost. Only durations on this machine's clock count. Times from another
//! machine's clock are never compared with ours.

use k8s_openapi::api::coordination::v1::LeaseSpec;
use std::time::Duration;
use tokio::time::Instant;

/// The times of a lease. A holder that cannot renew it gives up after [`Times::renew_deadline`]. Its process has the
/// rest of [`Times::duration`] to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long the lease stays with a holder that does not renew it, in whole seconds. Longer than `renew_deadline`.
    pub duration: Duration,
    /// When a holder that could not renew the lease gives up. It renews the lease after half of this time. Longer than
    /// `retry_period`.
    pub renew_deadline: Duration,
    /// How often other managers read the lease, and when the holder tries again after a failure.
    pub retry_period: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(30), renew_deadline: seconds(20), retry_period: seconds(2) }
    }
}

/// What to do about the lease as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is ours.
    Renew,
    /// It is free, or its holder is gone.
    Take {
        /// How often the lease has changed hands, this time included.
        transitions: i32,
    },
    /// Another manager holds it.
    Wait {
        /// That manager.
        holder: String,
    },
}

/// Decides what to do about a lease. `None`: it does not exist yet. `unchanged_for`: for how long we have seen it
/// without a change. `ours`: our own duration, for a lease that has none.
pub(super) fn turn(lease: Option<&LeaseSpec>, us: &str, unchanged_for: Duration, ours: Duration) -> Turn {
    let Some(lease) = lease else { return Turn::Take { transitions: 0 } };
    let take = Turn::Take { transitions: lease.lease_transitions.unwrap_or(0).saturating_add(1) };
    let Some(holder) = lease.holder_identity.as_deref().filter(|holder| !holder.is_empty()) else { return take };
    let duration = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    if holder == us {
        Turn::Renew
    } else if unchanged_for >= duration.map_or(ours, Duration::from_secs) {
        take
    } else {
        Turn::Wait { holder: holder.to_owned() }
    }
}

/// Renews the lease until it is lost, and returns the reason. It was last renewed at `renewed`. `attempt` returns the
/// other manager that holds it, if any.
///
/// Guarantee: it returns at the latest [`Times::renew_deadline`] after the beginning of the last successful attempt.
pub(super) async fn renew(
    times: Times,
    mut renewed: Instant,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<Option<String>>,
) -> String {
    let interval = times.renew_deadline / 2;
    let mut next = renewed + interval;
    loop {
        tokio::time::sleep_until(next).await;
        let begun = Instant::now();
        let deadline = renewed + times.renew_deadline;
        match tokio::time::timeout_at(deadline, attempt()).await {
            Ok(Ok(None)) if begun < deadline => {
                renewed = begun;
                next = begun + interval;
            }
            Ok(Ok(Some(holder))) => return format!("{holder} holds it now"),
            Ok(Err(error)) if begun < deadline => {
                tracing::warn!(error = format!("{error:#}"), "the lease could not be renewed, trying again");
                next = (Instant::now() + times.retry_period).min(deadline);
            }
            // This includes a success that came too late, because this process was suspended meanwhile.
            Ok(Ok(None) | Err(_)) | Err(_) => {
                return format!("it could not be renewed for {} s", renewed.elapsed().as_secs());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    const DURATION: Duration = Duration::from_secs(30);
    const DEADLINE: Duration = Duration::from_secs(20);
    const RENEW: Duration = Duration::from_secs(10);
    const LOOK: Duration = Duration::from_secs(2);

    async fn renew(renewed: Instant, attempt: impl AsyncFnMut() -> anyhow::Result<Option<String>>) -> String {
        super::renew(Times::default(), renewed, attempt).await
    }

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(30),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_taken_only_if_it_is_free_or_has_been_seen_unrenewed_for_its_duration() {
        let take = Turn::Take { transitions: 5 };
        let turn = |lease: &LeaseSpec, seconds| turn(Some(lease), "us", Duration::from_secs(seconds), DURATION);
        assert_eq!(super::turn(None, "us", Duration::ZERO, DURATION), Turn::Take { transitions: 0 });
        assert_eq!(turn(&held_by("us"), 0), Turn::Renew);
        assert_eq!(turn(&held_by("them"), 29), Turn::Wait { holder: "them".to_owned() });
        assert_eq!(turn(&held_by("them"), 30), take);
        assert_eq!(turn(&held_by(""), 0), take);
        assert_eq!(turn(&LeaseSpec { holder_identity: None, ..held_by("") }, 0), take);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_renewed_is_lost_well_before_it_expires() {
        let begun = Instant::now();
        let mut renewals = 0;
        let why = renew(begun, async || {
            renewals += 1;
            if renewals == 1 { Ok(None) } else { bail!("connection refused") }
        });
        assert_eq!(why.await, "it could not be renewed for 20 s");
        assert_eq!(begun.elapsed(), RENEW + DEADLINE, "counted from the one renewal that succeeded");
        assert!(DEADLINE + Duration::from_secs(10) <= DURATION);
    }

    #[tokio::test(start_paused = true)]
    async fn other_times_are_kept() {
        let seconds = Duration::from_secs;
        let times = Times { duration: seconds(9), renew_deadline: seconds(6), retry_period: seconds(1) };
        let begun = Instant::now();
        let mut attempts = Vec::new();
        let why = super::renew(times, begun, async || {
            attempts.push(begun.elapsed().as_secs());
            bail!("connection refused")
        });
        assert_eq!(why.await, "it could not be renewed for 6 s");
        assert_eq!(attempts, [3, 4, 5, 6], "in half the time, and again after each retry period");
        let held = LeaseSpec { lease_duration_seconds: None, ..held_by("them") };
        assert_eq!(turn(Some(&held), "us", seconds(9), times.duration), Turn::Take { transitions: 5 });
        assert_eq!(turn(Some(&held), "us", seconds(8), times.duration), Turn::Wait { holder: "them".to_owned() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_hangs_counts_as_one_that_fails() {
        let begun = Instant::now();
        assert_eq!(renew(begun, async || std::future::pending().await).await, "it could not be renewed for 20 s");
        assert_eq!(begun.elapsed(), DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_in_between_is_made_good() {
        let begun = Instant::now();
        let mut attempts = 0;
        let why = renew(begun, async || {
            attempts += 1;
            match attempts {
                1 | 2 => bail!("connection refused"),
                3..10 => Ok(None),
                _ => Ok(Some("them".to_owned())),
            }
        });
        assert_eq!(why.await, "them holds it now");
        assert_eq!(begun.elapsed(), RENEW + 2 * LOOK + 7 * RENEW);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_has_slept_does_not_take_a_late_renewal_for_a_good_one() {
        let slept = Instant::now();
        tokio::time::advance(DURATION).await;
        assert_eq!(renew(slept, async || Ok(None)).await, "it could not be renewed for 30 s");
    }
}
