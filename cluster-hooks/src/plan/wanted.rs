//! Which endpoints the control plane should have.

use super::preconditions;
use crate::observation::{ControlPlaneView, EtcdView, Observation, WrittenEndpoints};
use api::endpoints::EndpointLists;

/// The endpoints that a released control plane was given. None: a person says that it was given nothing, or a
/// ClusterClass writes it. Then it is not ours to restore them.
pub(super) fn given<'a>(observation: &'a Observation, control_plane: &ControlPlaneView) -> Option<&'a [String]> {
    let theirs = control_plane.given_nothing || observation.cluster.topology;
    let written = observation.written.as_ref().filter(|_| observation.released() && !theirs)?;
    Some(&written.endpoints)
}

/// The endpoints that are about to be written, unless kubeadm would refuse them.
pub(super) fn wants_endpoints<'a>(
    observation: &'a Observation,
    etcd: &'a EtcdView,
    control_plane: &ControlPlaneView,
) -> Option<&'a [String]> {
    let accepted = |endpoints: &&[String]| preconditions::of_endpoints(etcd, endpoints, control_plane).is_none();
    wanted(observation, etcd, control_plane).filter(accepted)
}

/// The endpoints that the control plane should have, if it has others. While etcd is Ready, these are etcd's endpoints.
/// Until etcd is Ready again, a released control plane keeps the list that it was given, because a member that is away
/// for a minute must not cause a rollout. If somebody has overwritten that list, the control plane gets it back,
/// provided that etcd's record of lists in use contains it. In all other cases, etcd's endpoints replace only the
/// placeholder.
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

/// The record of our last write, if we wrote these endpoints and somebody has overwritten them.
pub(super) fn overwritten<'a>(observation: &'a Observation, endpoints: &[String]) -> Option<&'a WrittenEndpoints> {
    observation.written.as_ref().filter(|written| written.endpoints == endpoints)
}
