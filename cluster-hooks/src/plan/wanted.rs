//! Which endpoints is the control plane to have?

use super::preconditions;
use crate::observation::{ControlPlaneView, EtcdView, Observation, WrittenEndpoints};
use api::endpoints::EndpointLists;

/// What a control plane that was released was given. It is nobody's to give back where a person says that it was
/// nothing, or where a ClusterClass writes it.
pub(super) fn given<'a>(observation: &'a Observation, control_plane: &ControlPlaneView) -> Option<&'a [String]> {
    let theirs = control_plane.given_nothing || observation.cluster.topology;
    let written = observation.written.as_ref().filter(|_| observation.released() && !theirs)?;
    Some(&written.endpoints)
}

/// The endpoints that are about to be written.
pub(super) fn wants_endpoints<'a>(
    observation: &'a Observation,
    etcd: &'a EtcdView,
    control_plane: &ControlPlaneView,
) -> Option<&'a [String]> {
    let accepted = |endpoints: &&[String]| preconditions::of_endpoints(etcd, endpoints, control_plane).is_none();
    wanted(observation, etcd, control_plane).filter(accepted)
}

/// The endpoints that the control plane is to have, if it has others: etcd's while etcd is Ready. A member that is away
/// for a minute must not roll the control plane, so until etcd is Ready again one that was released keeps what it was
/// given, and gets it back if somebody has written others over it, and etcd's record of what may be in use knows it
/// too. Otherwise etcd's replace the placeholder alone.
pub(super) fn wanted<'a>(
    observation: &'a Observation,
    etcd: &'a EtcdView,
    control_plane: &ControlPlaneView,
) -> Option<&'a [String]> {
    let found = control_plane.sorted_endpoints();
    let lost = control_plane.initialized && !control_plane.has_endpoints();
    let in_use =
        |given: &&[String]| etcd.in_use.iter().flat_map(EndpointLists::iter).any(|list| list.iter().eq(*given));
    let wanted = match given(observation, control_plane).filter(in_use) {
        _ if etcd.ready || found == etcd.endpoints => &*etcd.endpoints,
        Some(given) => given,
        None if lost => &etcd.endpoints,
        None => return None,
    };
    (!etcd.deleting && !wanted.is_empty() && found != *wanted).then_some(wanted)
}

/// These endpoints were written before, and have been overwritten.
pub(super) fn overwritten<'a>(observation: &'a Observation, endpoints: &[String]) -> Option<&'a WrittenEndpoints> {
    observation.written.as_ref().filter(|written| written.endpoints == endpoints)
}
