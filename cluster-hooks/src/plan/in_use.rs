//! Which endpoints may some API server be using? The etcd object is told, so that its provider knows which members it may
//! not retire yet. What it has been told stands on the etcd object itself: that is the memory, and it survives us.

use super::handover::wants_endpoints;
use super::{Plan, Step};
use crate::observation::{Claim, ControlPlaneView, EtcdView, Observation};
use std::collections::BTreeSet;

/// Endpoints that may be in use. They enter before the control plane is given them, and leave only once it is seen that
/// every machine has been made from its present spec.
///
/// `told` has been told before, `control_plane` stands in the control plane, `next` is about to be written into it.
fn in_use(told: &[String], control_plane: &[String], next: &[String], rolled: bool) -> Vec<String> {
    let told = if rolled { &[] } else { told };
    let all: BTreeSet<&String> = told.iter().chain(control_plane).chain(next).collect();
    all.into_iter().cloned().collect()
}

/// Tells the etcd object, if that is news to it.
pub(super) fn plan(observation: &Observation) -> Option<Plan> {
    let (etcd, control_plane) = (observation.found_etcd()?, observation.found_control_plane()?);
    let going = etcd.deleting || observation.cluster.view.deleting;
    if going || etcd.claim != Claim::Ours || control_plane.endpoints.is_none() {
        return None;
    }
    let told = etcd.in_use.as_deref().unwrap_or_default();
    let now = in_use(told, &control_plane.real_endpoints(), next(etcd, control_plane), rolled(control_plane));
    (now != told).then_some(Plan::Do(Step::RecordEndpointsInUse(now)))
}

fn next<'a>(etcd: &'a EtcdView, control_plane: &ControlPlaneView) -> &'a [String] {
    if !control_plane.deleting && wants_endpoints(etcd, control_plane) { &etcd.endpoints } else { &[] }
}

/// A control plane that is being deleted has machines until it is gone.
fn rolled(control_plane: &ControlPlaneView) -> bool {
    control_plane.rollout.complete() && !control_plane.deleting
}

/// Endpoints would leave: worth a look at the control plane itself, since a watch may be behind.
pub fn retires(observation: &Observation) -> bool {
    match (plan(observation), observation.found_etcd().and_then(|etcd| etcd.in_use.as_ref())) {
        (Some(Plan::Do(Step::RecordEndpointsInUse(now))), Some(told)) => told.iter().any(|url| !now.contains(url)),
        _ => false,
    }
}

/// Endpoints that are in use and do not stand in the control plane any more.
pub fn retiring(observation: &Observation) -> Vec<String> {
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
        for (told, control_plane, next, rolled, expected) in [
            // The handover.
            ("", "", "", false, ""),
            ("", "", "a b c", false, "a b c"),
            ("a b c", "", "a b c", false, "a b c"),
            ("a b c", "a b c", "", false, "a b c"),
            ("a b c", "a b c", "", true, "a b c"),
            // They change.
            ("a b c", "a b c", "d e f", true, "a b c d e f"),
            ("a b c d e f", "a b c", "d e f", true, "a b c d e f"),
            ("a b c d e f", "d e f", "", false, "a b c d e f"),
            ("a b c d e f", "d e f", "", true, "d e f"),
            // Again, before all have rolled.
            ("a b", "b", "c", false, "a b c"),
            ("a b c", "c", "", true, "c"),
            // What was to be written never was.
            ("a b", "a", "c", true, "a c"),
            ("a b", "a", "", true, "a"),
            // Somebody else has written them.
            ("a", "x", "", false, "a x"),
            ("a", "x", "", true, "x"),
            // The placeholder is none.
            ("a", "", "", false, "a"),
            ("a", "", "", true, ""),
            // Sorted, each once.
            ("c a", "b a a", "d", false, "a b c d"),
        ] {
            let (told, control_plane, next) = (urls(told), urls(control_plane), urls(next));
            let now = in_use(&told, &control_plane, &next, rolled);
            assert_eq!(now, urls(expected), "{told:?} {control_plane:?} {next:?} {rolled}");
            assert_eq!(in_use(&now, &control_plane, &next, rolled), now, "telling it again changes nothing");
        }
    }
}
