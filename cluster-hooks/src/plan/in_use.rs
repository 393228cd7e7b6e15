//! Which lists of endpoints API servers may be using. The hook records them on the etcd object, so that the provider of
//! etcd knows which members it may not retire yet. Nothing else has to be remembered: the record outlives this process.

use super::wanted::wants_endpoints;
use super::{Plan, Step};
use crate::observation::{Claim, ControlPlaneView, EtcdView, Joining, Need, Observation, Used};
use api::endpoints::EndpointLists;
use api::names;

/// The lists that may be in use. A list enters before the control plane is given it. It leaves only once it is known
/// that every machine was made with another list.
///
/// `recorded`: the lists on the etcd object. `control_plane`: the list in the control plane. `next`: the list that is
/// about to be written into it. `used`: the lists of its machines, and the list that further machines would join with.
/// None: machines are still being replaced, or what they use is not known.
fn in_use(
    recorded: &EndpointLists,
    control_plane: &[String],
    next: &[String],
    used: Option<&EndpointLists>,
) -> EndpointLists {
    let machines = used.unwrap_or(recorded).iter().cloned();
    machines.chain([control_plane, next].map(|list| list.iter().cloned().collect())).collect()
}

/// Records the lists that may be in use, if the record differs.
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
    // A control plane that is being deleted has machines until it is gone.
    let rolled = control_plane.rollout.complete() && !control_plane.deleting;
    if rolled && in_use(recorded, &present, next, Some(&none)) != now {
        // Lists would leave the record. A watch may be behind, and counts may be outdated, so the machines themselves
        // are read.
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

/// The record is missing, although API servers may be using lists that it had: somebody has replaced the etcd object
/// without it, or it never existed. The machines show what they use. Until that is known, there is no record, and
/// etcd's provider retires no member. An incomplete record would be worse, because nothing shows that it is incomplete.
fn recover(observation: &Observation, control_plane: &ControlPlaneView, next: &[String]) -> Option<Plan> {
    let used = match &observation.reads.used {
        None => return Some(Plan::Do(Step::Read(Need::Used))),
        // A controller that has not observed the present spec may be about to make a machine from the previous one.
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

/// The lists of a KubeadmControlPlane's machines, with the list that further machines would join with.
enum Joined {
    Known(EndpointLists),
    ToBeRead,
    Unknown,
}

/// When a machine joins, kubeadm uses the endpoints that it keeps in the Kubernetes cluster, and not those that the
/// machine was made from. Before there is an API server, kubeadm keeps none.
fn with_joining(observation: &Observation, control_plane: &ControlPlaneView, used: &EndpointLists) -> Joined {
    match &observation.reads.joining {
        _ if !control_plane.initialized => Joined::Known(used.clone()),
        None => Joined::ToBeRead,
        Some(Joining::Unknown(_) | Joining::WithNone) => Joined::Unknown,
        Some(Joining::With(list)) => Joined::Known(used.iter().cloned().chain([list.clone()]).collect()),
    }
}

fn may_have_machines(control_plane: &ControlPlaneView) -> bool {
    !is_new(control_plane) || !control_plane.real_endpoints().is_empty()
}

/// Whether the control plane has not yet reported a machine or an initialized API server.
fn is_new(control_plane: &ControlPlaneView) -> bool {
    !control_plane.initialized && !control_plane.rollout.has_machines()
}

fn next<'a>(observation: &'a Observation, etcd: &'a EtcdView, control_plane: &ControlPlaneView) -> &'a [String] {
    if control_plane.deleting { &[] } else { wants_endpoints(observation, etcd, control_plane).unwrap_or_default() }
}

/// What a person can do if it stays unknown which endpoints further machines would join with. Every list would then
/// stay in use forever, for example with a kubeconfig that names a proxy or files, or an API server that this process
/// cannot reach.
pub fn way_out(observation: &Observation) -> Option<String> {
    let is_unknown = matches!(observation.reads.joining, Some(Joining::Unknown(_)));
    let etcd = observation.found_etcd().filter(|_| is_unknown)?;
    let (reference, annotation) = (&etcd.reference, names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION);
    Some(format!(
        "If this lasts, and no API server needs these endpoints, set annotation {annotation} of {reference} to the \
         value of its metadata.generation"
    ))
}

/// Lists that are recorded as in use, except the one that is in the control plane.
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
            // The endpoints change.
            ("abc", "abc", "def", "abc", "abc def"),
            ("abc def", "def", "", "-", "abc def"),
            ("abc def", "def", "", "def", "def"),
            ("abc def", "def", "", "abc def", "abc def"),
            // There are more endpoints, and machines with the shorter list.
            ("a", "a", "abc", "-", "a abc"),
            ("a abc", "abc", "", "a abc", "a abc"),
            ("a abc", "abc", "", "abc", "abc"),
            // Counts say that all machines have been replaced, but one has not.
            ("ab cd", "cd", "", "cb", "cb cd"),
            // The endpoints change again before all machines have been replaced.
            ("a b", "b", "c", "-", "a b c"),
            ("a b c", "c", "", "", "c"),
            // The next list was recorded, but never written.
            ("a b", "a", "c", "a", "a c"),
            ("a b", "a", "", "", "a"),
            // Somebody else has written the endpoints.
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
