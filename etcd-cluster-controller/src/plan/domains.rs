//! Failure domains are places, such as zones, that may fail as a whole. If its members are in several of them, etcd
//! survives that. A Machine gets its failure domain when it is created, and keeps it. A Machine whose domain is no
//! longer reported is not replaced, and KubeadmControlPlane does not replace such a Machine either.

use super::View;
use super::repair::is_kept;
use super::rollout::is_outdated;
use crate::roster::Seat;
use std::collections::BTreeSet;

/// The failure domain of the next Machine: the domain with the fewest Machines that stay, and of several such domains
/// the first by name. In a rollout, the Machines that match the spec are counted first, because only they remain in the
/// end. `None`: the Cluster has no failure domains.
pub(super) fn next(view: &View<'_>) -> Option<String> {
    let kept = view.roster.seats.iter().filter(|seat| is_kept(view, seat));
    let (old, new): (Vec<_>, Vec<_>) = kept.partition(|seat| is_outdated(view, seat));
    let domains = reported(view).unwrap_or(&view.cluster()?.failure_domains).iter();
    domains.min_by_key(|domain| (machines_in(domain, &new), machines_in(domain, &old))).cloned()
}

/// The failure domains that the infrastructure has reported. `None`: it has not reported yet.
pub(super) fn reported<'a>(view: &View<'a>) -> Option<&'a BTreeSet<String>> {
    let observation = view.observation;
    match observation.cluster.one() {
        Some(cluster) if cluster.infrastructure_ready => Some(&cluster.failure_domains),
        _ => observation.reported_domains.as_ref(),
    }
}

fn machines_in(domain: &str, seats: &[&Seat<'_>]) -> usize {
    let is_there = |seat: &Seat<'_>| seat.machine.is_some_and(|m| m.failure_domain.as_deref() == Some(domain));
    seats.iter().filter(|seat| is_there(seat)).count()
}
