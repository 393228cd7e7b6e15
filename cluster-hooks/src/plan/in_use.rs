//! Which lists of endpoints may some API server be using? They are recorded on the etcd object, so that its provider knows
//! which members it may not retire yet. The record is the memory: it survives us.

use super::wanted::wants_endpoints;
use super::{Plan, Step};
use crate::observation::{Claim, ControlPlaneView, EtcdView, Joining, Need, Observation, Used};
use api::endpoints::EndpointLists;
use api::names;

/// Lists that may be in use. One enters before the control plane is given it, and leaves only once it is known that every
/// machine has been made with another.
///
/// `recorded` are on the etcd object, `control_plane` is in the control plane, `next` is about to be written into it.
/// `used` are those of its machines, and of those that join it later; None: they are still being replaced, or cannot be
/// told.
fn in_use(
    recorded: &EndpointLists,
    control_plane: &[String],
    next: &[String],
    used: Option<&EndpointLists>,
) -> EndpointLists {
    let machines = used.unwrap_or(recorded).iter().cloned();
    machines.chain([control_plane, next].map(|list| list.iter().cloned().collect())).collect()
}

/// Records them, if the record differs.
pub(super) fn plan(observation: &Observation) -> Option<Plan> {
    let (etcd, control_plane) = (observation.found_etcd()?, observation.found_control_plane()?);
    let going = etcd.deleting || observation.cluster.view.deleting;
    if going || etcd.claim != Claim::Ours || control_plane.endpoints.is_none() {
        return None;
    }
    let (present, next) = (control_plane.real_endpoints(), next(observation, etcd, control_plane));
    let none = EndpointLists::default();
    let recorded = match &etcd.in_use {
        Some(recorded) => recorded,
        None if may_have_machines(control_plane) => return recover(observation, control_plane, next),
        None => &none,
    };
    let mut now = in_use(recorded, &present, next, None);
    // One that is being deleted has machines until it is gone.
    let rolled = control_plane.rollout.complete() && !control_plane.deleting;
    if rolled && in_use(recorded, &present, next, Some(&none)) != now {
        // Lists would leave: worth a look at the machines themselves. A watch may be behind, and counts may be old.
        match &observation.reads.used {
            None => return Some(Plan::Do(Step::Read(Need::Used))),
            Some(Used::Unknown | Used::NoMachine) => {}
            Some(Used::OfSpec) => now = in_use(recorded, &present, next, Some(&none)),
            Some(Used::These(used)) => {
                let rest = in_use(recorded, &present, next, Some(used));
                match with_joining(observation, control_plane, used) {
                    _ if !recorded.has_more_than(&rest) => now = rest,
                    Joined::Known(used) => now = in_use(recorded, &present, next, Some(&used)),
                    Joined::ToBeRead => return Some(Plan::Do(Step::Read(Need::Joining))),
                    Joined::Unknown => {}
                }
            }
        }
    }
    let retire = recorded.has_more_than(&now);
    (now != *recorded).then_some(Plan::Do(Step::RecordEndpointsInUse { lists: now, retire }))
}

/// The record is missing, and API servers may be using what it said: somebody has replaced the etcd object without it, or there
/// never was one. The machines tell. Until they do there is no record, and etcd's provider retires nothing: a record that is
/// not complete would be taken for the whole.
fn recover(observation: &Observation, control_plane: &ControlPlaneView, next: &[String]) -> Option<Plan> {
    let used = match &observation.reads.used {
        None => return Some(Plan::Do(Step::Read(Need::Used))),
        // A controller that has not seen the present spec may be about to make a machine of the one before.
        Some(Used::These(used)) if control_plane.rollout.is_observed() => {
            match with_joining(observation, control_plane, used) {
                Joined::Known(used) => used,
                Joined::ToBeRead => return Some(Plan::Do(Step::Read(Need::Joining))),
                Joined::Unknown => return None,
            }
        }
        Some(Used::OfSpec) if control_plane.rollout.complete() || is_new(control_plane) => EndpointLists::default(),
        Some(Used::NoMachine) if is_new(control_plane) => EndpointLists::default(),
        Some(_) => return None,
    };
    let now = in_use(&EndpointLists::default(), &control_plane.real_endpoints(), next, Some(&used));
    (!now.is_empty()).then_some(Plan::Do(Step::RecordEndpointsInUse { lists: now, retire: false }))
}

/// The lists of a KubeadmControlPlane's machines, with the one that further machines would be started with.
enum Joined {
    Known(EndpointLists),
    ToBeRead,
    Unknown,
}

/// kubeadm starts a machine that joins with what it keeps in the Kubernetes cluster, and not with what the machine was made
/// from. Before there is an API server nothing is kept.
fn with_joining(observation: &Observation, control_plane: &ControlPlaneView, used: &EndpointLists) -> Joined {
    match &observation.reads.joining {
        _ if !control_plane.initialized => Joined::Known(used.clone()),
        None => Joined::ToBeRead,
        Some(Joining::Unknown(_)) => Joined::Unknown,
        Some(Joining::With(list)) => Joined::Known(used.iter().cloned().chain([list.clone()]).collect()),
    }
}

fn may_have_machines(control_plane: &ControlPlaneView) -> bool {
    !is_new(control_plane) || !control_plane.real_endpoints().is_empty()
}

/// It has reported no machine yet, and no API server.
fn is_new(control_plane: &ControlPlaneView) -> bool {
    !control_plane.initialized && !control_plane.rollout.has_machines()
}

fn next<'a>(observation: &'a Observation, etcd: &'a EtcdView, control_plane: &ControlPlaneView) -> &'a [String] {
    if control_plane.deleting { &[] } else { wants_endpoints(observation, etcd, control_plane).unwrap_or_default() }
}

/// What a person can do where it stays unknown what further machines would join with. That keeps every list in use for
/// ever, as with a kubeconfig that names a proxy or files, or an API server that this process never reaches.
pub fn way_out(observation: &Observation) -> Option<String> {
    let is_unknown = matches!(observation.reads.joining, Some(Joining::Unknown(_)));
    let etcd = observation.found_etcd().filter(|_| is_unknown)?;
    let (reference, annotation) = (&etcd.reference, names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION);
    Some(format!(
        "If this lasts, and no API server needs these endpoints, set annotation {annotation} of {reference} to the \
         value of its metadata.generation"
    ))
}

/// Lists that are recorded as in use, but for the one that is in the control plane.
pub fn earlier(observation: &Observation) -> EndpointLists {
    let (Some(etcd), Some(control_plane)) = (observation.found_etcd(), observation.found_control_plane()) else {
        return EndpointLists::default();
    };
    let present = control_plane.real_endpoints().into_iter().collect();
    let recorded = etcd.in_use.iter().flat_map(EndpointLists::iter);
    recorded.filter(|list| **list != present).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each letter is an endpoint, and each word a list.
    fn lists(text: &str) -> EndpointLists {
        text.split_whitespace().map(|list| list.chars().map(String::from).collect()).collect()
    }

    fn urls(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn lists_enter_at_once_and_leave_with_the_last_machine() {
        // "-": machines are still being replaced.
        for (recorded, control_plane, next, used, expected) in [
            // The handover.
            ("", "", "", "-", ""),
            ("", "", "abc", "-", "abc"),
            ("abc", "", "abc", "-", "abc"),
            ("abc", "abc", "", "-", "abc"),
            ("abc", "abc", "", "abc", "abc"),
            // They change.
            ("abc", "abc", "def", "abc", "abc def"),
            ("abc def", "def", "", "-", "abc def"),
            ("abc def", "def", "", "def", "def"),
            ("abc def", "def", "", "abc def", "abc def"),
            // There are more of them, and machines with the shorter list.
            ("a", "a", "abc", "-", "a abc"),
            ("a abc", "abc", "", "a abc", "a abc"),
            ("a abc", "abc", "", "abc", "abc"),
            // Counts say that all have rolled, and one has not.
            ("ab cd", "cd", "", "cb", "cb cd"),
            // Again, before all have rolled.
            ("a b", "b", "c", "-", "a b c"),
            ("a b c", "c", "", "", "c"),
            // What was to be written never was.
            ("a b", "a", "c", "a", "a c"),
            ("a b", "a", "", "", "a"),
            // Somebody else has written them.
            ("a", "x", "", "-", "a x"),
            ("a", "x", "", "x", "x"),
            ("a", "a", "", "ax", "a ax"),
            // The placeholder does not count.
            ("a", "", "", "-", "a"),
            ("a", "", "", "", ""),
            // Sorted, each once.
            ("ca", "baa", "d", "-", "ab ac d"),
        ] {
            let used = (used != "-").then(|| lists(used));
            let (recorded, control_plane, next) = (lists(recorded), urls(control_plane), urls(next));
            let now = in_use(&recorded, &control_plane, &next, used.as_ref());
            assert_eq!(now, lists(expected), "{recorded:?} {control_plane:?} {next:?} {used:?}");
            assert_eq!(in_use(&now, &control_plane, &next, used.as_ref()), now, "recording it again changes nothing");
        }
    }
}
