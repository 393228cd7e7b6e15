//! When to reconcile again if no event comes first. Objects are watched and members are probed elsewhere, so this
//! covers only what causes no event: times that run out, and answers that may have changed.

use super::repair::{self, recovers};
use super::{Plan, View, marked, metrics_client, stuck, upgrade};
use crate::build;
use crate::observation::Observation;
use std::time::Duration;

/// How often a block or a refusal is checked again. Permissions and kinds are not watched.
const BLOCKED: Duration = Duration::from_secs(10);
/// How often a deletion is checked again: an event that is lost must not keep an object forever.
const DELETING: Duration = Duration::from_secs(30);
/// When to reconcile after a write. The write causes an event, unless someone else has already made the same change.
const WRITTEN: Duration = Duration::from_secs(1);

/// How long to wait. `None`: until an event comes.
#[must_use]
pub fn due(observation: &Observation, plan: &Plan) -> Option<Duration> {
    let asked = plan.hold().and_then(|hold| hold.again);
    let own = match plan {
        Plan::Do(_) => Some(WRITTEN),
        Plan::Block(_) if asked.is_none() => Some(BLOCKED),
        Plan::Block(_) | Plan::Wait(_) | Plan::Steady => {
            let view = View::new(observation);
            let times = [
                deletion(observation, plan),
                deadline(observation),
                steady(&view),
                marked::due(&view),
                stuck::due(&view),
                repair::due(&view),
                rollout(observation),
                expiry(observation),
                renewal(observation),
                metrics_client::due(observation),
                excused(&view),
                smaller(&view),
            ];
            times.into_iter().flatten().min()
        }
    };
    asked.into_iter().chain(own).min()
}

/// When a deletion that the plan waits for is checked again, of the EtcdCluster or of a Machine.
fn deletion(observation: &Observation, plan: &Plan) -> Option<Duration> {
    let deleting = observation.etcd.metadata.deletion_timestamp.is_some();
    let goes = || deleting || observation.machines.values().any(|machine| machine.deleting);
    (matches!(plan, Plan::Wait(_)) && goes()).then_some(DELETING)
}

/// When a voter that has recovered has been healthy for long enough.
fn steady(view: &View<'_>) -> Option<Duration> {
    recovers(view).filter(|left| !left.is_zero())
}

/// When failures of a member begin to count that did not count before, because there was no quorum. The member becomes
/// unhealthy when it fails one more check. That check causes no event, because the prober has long reported that the
/// member fails. So until it comes, there is a reconcile at every interval.
fn excused(view: &View<'_>) -> Option<Duration> {
    let observation = view.observation;
    let until = view.roster.seats.iter().filter_map(|seat| seat.excused_until(observation));
    let left = until.map(|until| Duration::try_from(until.duration_since(observation.now)).unwrap_or_default());
    left.map(|left| if left.is_zero() { observation.interval() } else { left }).min()
}

/// When the size of the database is compared with the quota again, while the quota is too small. The prober does not
/// report small changes.
fn smaller(view: &View<'_>) -> Option<Duration> {
    upgrade::small_quota(view).map(|_| view.observation.interval())
}

/// When the next Machine is to be replaced because its member's certificate expires.
fn expiry(observation: &Observation) -> Option<Duration> {
    let machines = observation.live_machines();
    let from = machines.filter_map(|machine| build::replaced_before_expiry(&observation.etcd, &machine.name));
    let next = from.filter(|from| *from > observation.now).min()?;
    Duration::try_from(next.duration_since(observation.now)).ok()
}

/// When the API servers' client certificate is to be renewed.
fn renewal(observation: &Observation) -> Option<Duration> {
    let at = observation.certificates.renewed_at().filter(|at| *at > observation.now)?;
    Duration::try_from(at.duration_since(observation.now)).ok()
}

/// When the replacement of Machines begins that were made before `rolloutAfter`.
fn rollout(observation: &Observation) -> Option<Duration> {
    let from = build::replaces_from(&observation.etcd).filter(|from| *from > observation.now)?;
    Duration::try_from(from.duration_since(observation.now)).ok()
}

/// When the next grace of a Machine ends. A Machine that is being deleted counts too, because it may go then.
fn deadline(observation: &Observation) -> Option<Duration> {
    let booting = observation.machines.values().filter(|machine| observation.is_admitted(machine));
    let ends = booting.filter_map(|machine| observation.end_of_grace(machine));
    let left = ends.map(|end| end.as_second() - observation.now.as_second()).filter(|left| *left > 0);
    left.min().and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
}
