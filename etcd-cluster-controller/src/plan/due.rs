//! When to look again, if nothing happens before. Objects are watched and members are probed elsewhere, so this is only for
//! what no event tells: times that run out, and answers that may have become different.

use super::repair::{self, recovers};
use super::{Plan, View, marked, metrics_client, stuck};
use crate::build;
use crate::observation::Observation;
use std::time::Duration;

/// How often what needs a person, or was refused, is looked at again. Permissions and kinds are not watched.
const BLOCKED: Duration = Duration::from_secs(10);
/// How often a deletion is looked at: an event that is lost must not keep an object forever.
const DELETING: Duration = Duration::from_secs(30);
/// After a write. It causes an event; this is for the case that somebody else had made it already.
const WRITTEN: Duration = Duration::from_secs(1);

/// How long to wait. `None`: an event tells.
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
            ];
            times.into_iter().flatten().min()
        }
    };
    asked.into_iter().chain(own).min()
}

/// When a deletion that is waited for is looked at again, of the EtcdCluster or of a Machine.
fn deletion(observation: &Observation, plan: &Plan) -> Option<Duration> {
    let deleting = observation.etcd.metadata.deletion_timestamp.is_some();
    let goes = || deleting || observation.machines.values().any(|machine| machine.deleting);
    (matches!(plan, Plan::Wait(_)) && goes()).then_some(DELETING)
}

/// When a voter that has recovered has been healthy for long enough.
fn steady(view: &View<'_>) -> Option<Duration> {
    recovers(view).filter(|left| !left.is_zero())
}

/// When it is held against a member that its checks fail, which it was not before as there was no quorum. It takes a
/// check, which is not news for the prober: that has told long ago that they fail. So it is looked at until that comes.
fn excused(view: &View<'_>) -> Option<Duration> {
    let observation = view.observation;
    let until = view.roster.seats.iter().filter_map(|seat| seat.excused_until(observation));
    let left = until.map(|until| Duration::try_from(until.duration_since(observation.now)).unwrap_or_default());
    left.map(|left| if left.is_zero() { observation.interval() } else { left }).min()
}

/// When the first Machine is to be replaced whose member's certificate expires.
fn expiry(observation: &Observation) -> Option<Duration> {
    let machines = observation.live_machines();
    let from = machines.filter_map(|machine| build::replaced_before_expiry(&observation.etcd, &machine.name));
    let next = from.filter(|from| *from > observation.now).min()?;
    Duration::try_from(next.duration_since(observation.now)).ok()
}

/// When the API servers' client certificate is made again.
fn renewal(observation: &Observation) -> Option<Duration> {
    let at = observation.certificates.renewed_at().filter(|at| *at > observation.now)?;
    Duration::try_from(at.duration_since(observation.now)).ok()
}

/// When earlier Machines begin to be replaced.
fn rollout(observation: &Observation) -> Option<Duration> {
    let from = build::replaces_from(&observation.etcd).filter(|from| *from > observation.now)?;
    Duration::try_from(from.duration_since(observation.now)).ok()
}

/// When the next Machine's start-up grace ends: also of one on its way out, which may go then.
fn deadline(observation: &Observation) -> Option<Duration> {
    let booting = observation.machines.values().filter(|machine| observation.is_admitted(machine));
    let ends = booting.filter_map(|machine| observation.end_of_grace(machine));
    let left = ends.map(|end| end.as_second() - observation.now.as_second()).filter(|left| *left > 0);
    left.min().and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs)
}
