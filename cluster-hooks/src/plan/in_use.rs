//! Which endpoints may some API server be using? It is recorded on the etcd object, so that its provider knows which members
//! it may not retire yet. The record is the memory: it survives us.

use super::handover::wants_endpoints;
use super::{Plan, Step};
use crate::observation::{Claim, ControlPlaneView, EtcdView, Need, Observation, Used};
use std::collections::BTreeSet;

/// Endpoints that may be in use. They enter before the control plane is given them, and leave only once it is known that
/// every machine has been made without them.
///
/// `recorded` is on the etcd object, `control_plane` in the control plane, `next` is about to be written into it. `used` are
/// those of its machines; None: they are still being replaced, or cannot be told.
fn in_use(
    recorded: &[String],
    control_plane: &[String],
    next: &[String],
    used: Option<&BTreeSet<String>>,
) -> Vec<String> {
    let machines: BTreeSet<&String> = used.map_or_else(|| recorded.iter().collect(), |used| used.iter().collect());
    let all: BTreeSet<&String> = machines.into_iter().chain(control_plane).chain(next).collect();
    all.into_iter().cloned().collect()
}

/// Records them, if the record differs.
pub(super) fn plan(observation: &Observation) -> Option<Plan> {
    let (etcd, control_plane) = (observation.found_etcd()?, observation.found_control_plane()?);
    let going = etcd.deleting || observation.cluster.view.deleting;
    if going || etcd.claim != Claim::Ours || control_plane.endpoints.is_none() {
        return None;
    }
    let (present, next) = (control_plane.real_endpoints(), next(observation, etcd, control_plane));
    let recorded = match &etcd.in_use {
        Some(recorded) => recorded.as_slice(),
        None if may_have_machines(control_plane) => return recover(observation, control_plane, next),
        None => &[],
    };
    let none = BTreeSet::new();
    let mut now = in_use(recorded, &present, next, None);
    // One that is being deleted has machines until it is gone.
    let rolled = control_plane.rollout.complete() && !control_plane.deleting;
    if rolled && in_use(recorded, &present, next, Some(&none)) != now {
        // Endpoints would leave: worth a look at the machines themselves. A watch may be behind, and counts may be old.
        match &observation.reads.used {
            None => return Some(Plan::Do(Step::Read(Need::Used))),
            Some(Used::Unknown | Used::NoMachine) => {}
            Some(Used::OfSpec) => now = in_use(recorded, &present, next, Some(&none)),
            Some(Used::These(used)) => now = in_use(recorded, &present, next, Some(used)),
        }
    }
    let retire = recorded.iter().any(|url| !now.contains(url));
    (now != recorded).then_some(Plan::Do(Step::RecordEndpointsInUse { endpoints: now, retire }))
}

/// The record is missing, and API servers may be using what it said: somebody has replaced the etcd object without it, or there
/// never was one. The machines tell. Until they do there is no record, and etcd's provider retires nothing: a record that is
/// not complete would be taken for the whole.
fn recover(observation: &Observation, control_plane: &ControlPlaneView, next: &[String]) -> Option<Plan> {
    let used = match &observation.reads.used {
        None => return Some(Plan::Do(Step::Read(Need::Used))),
        // A controller that has not seen the present spec may be about to make a machine of the one before.
        Some(Used::These(used)) if control_plane.rollout.is_observed() => used.clone(),
        Some(Used::OfSpec) if control_plane.rollout.complete() || is_new(control_plane) => BTreeSet::new(),
        Some(Used::NoMachine) if is_new(control_plane) => BTreeSet::new(),
        Some(_) => return None,
    };
    let now = in_use(&[], &control_plane.real_endpoints(), next, Some(&used));
    (!now.is_empty()).then_some(Plan::Do(Step::RecordEndpointsInUse { endpoints: now, retire: false }))
}

fn may_have_machines(control_plane: &ControlPlaneView) -> bool {
    !is_new(control_plane) || !control_plane.real_endpoints().is_empty()
}

/// It has reported no machine yet, and no API server.
fn is_new(control_plane: &ControlPlaneView) -> bool {
    !control_plane.initialized && !control_plane.rollout.has_machines()
}

fn next<'a>(observation: &Observation, etcd: &'a EtcdView, control_plane: &ControlPlaneView) -> &'a [String] {
    let written = !control_plane.deleting && wants_endpoints(observation, etcd, control_plane);
    if written { &etcd.endpoints } else { &[] }
}

/// Endpoints that are recorded as in use and are no longer in the control plane.
pub fn leaving(observation: &Observation) -> Vec<String> {
    let (Some(etcd), Some(control_plane)) = (observation.found_etcd(), observation.found_control_plane()) else {
        return Vec::new();
    };
    let present = control_plane.real_endpoints();
    etcd.in_use.iter().flatten().filter(|url| !present.contains(url)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn endpoints_enter_at_once_and_leave_with_the_last_machine() {
        // "-": machines are still being replaced.
        for (recorded, control_plane, next, used, expected) in [
            // The handover.
            ("", "", "", "-", ""),
            ("", "", "a b c", "-", "a b c"),
            ("a b c", "", "a b c", "-", "a b c"),
            ("a b c", "a b c", "", "-", "a b c"),
            ("a b c", "a b c", "", "a b c", "a b c"),
            // They change.
            ("a b c", "a b c", "d e f", "a b c", "a b c d e f"),
            ("a b c d e f", "d e f", "", "-", "a b c d e f"),
            ("a b c d e f", "d e f", "", "d e f", "d e f"),
            ("a b c d e f", "d e f", "", "a b c d e f", "a b c d e f"),
            // Counts say that all have rolled, and one has not.
            ("a b c d", "c d", "", "c b", "b c d"),
            // Again, before all have rolled.
            ("a b", "b", "c", "-", "a b c"),
            ("a b c", "c", "", "", "c"),
            // What was to be written never was.
            ("a b", "a", "c", "a", "a c"),
            ("a b", "a", "", "", "a"),
            // Somebody else has written them.
            ("a", "x", "", "-", "a x"),
            ("a", "x", "", "x", "x"),
            ("a", "a", "", "a x", "a x"),
            // The placeholder does not count.
            ("a", "", "", "-", "a"),
            ("a", "", "", "", ""),
            // Sorted, each once.
            ("c a", "b a a", "d", "-", "a b c d"),
        ] {
            let used: Option<BTreeSet<String>> = (used != "-").then(|| urls(used).into_iter().collect());
            let (recorded, control_plane, next) = (urls(recorded), urls(control_plane), urls(next));
            let now = in_use(&recorded, &control_plane, &next, used.as_ref());
            assert_eq!(now, urls(expected), "{recorded:?} {control_plane:?} {next:?} {used:?}");
            assert_eq!(in_use(&now, &control_plane, &next, used.as_ref()), now, "recording it again changes nothing");
        }
    }
}
