//! Members that no Machine carries, and beside which a person lets Machines be admitted. If most Machines are gone and
//! their machines still run, none of these members can be removed, because the other members have no quorum. Normally
//! nothing is added beside such members. With a person's consent, new members join first, and the old ones leave by all
//! the other rules.

use super::View;
use crate::observation::hex;
use crate::quorum::survives;
use crate::roster::Seat;
use crate::roster::strangers::answers_at;
use api::names;
use kube::ResourceExt;

/// Whether a person has named a member of etcd's list, and the member answers its checks: a Machine that joins may need
/// its vote.
pub(super) fn is_agreed(view: &View<'_>, seat: &Seat<'_>) -> bool {
    let named = view.observation.etcd.annotations().get(names::ADMIT_BESIDE_ANNOTATION);
    let is_named = |id: u64| named.is_some_and(|ids| ids.split(',').any(|other| other.trim() == hex(id)));
    let is_listed = view.roster.is_listed() && seat.is_stranger();
    is_listed && seat.id().is_some_and(is_named) && answers_at(view.observation, seat).is_some()
}

/// What a person can do about members that answer and that no Machine carries, if the other voters have no quorum.
/// Empty if they have a quorum.
pub(super) fn way_out(view: &View<'_>) -> String {
    let (voters, well) = (view.roster.voters().count(), view.roster.voters().filter(|seat| seat.is_well()).count());
    let strangers = view.roster.strangers();
    let answering = strangers.into_iter().filter(|seat| answers_at(view.observation, seat).is_some());
    let ids: Vec<String> = answering.filter_map(Seat::id).map(hex).collect();
    if ids.is_empty() || survives(voters, well) >= 0 {
        return String::new();
    }
    let etcd = &view.observation.etcd;
    format!(
        ". The others have no quorum. To let Machines join beside these members for as long as these answer, run: kubectl annotate --overwrite -n {} etcdclusters.{} {} {}={}",
        etcd.namespace().unwrap_or_default(),
        names::ETCD_CLUSTER_GROUP,
        etcd.name_any(),
        names::ADMIT_BESIDE_ANNOTATION,
        ids.join(",")
    )
}
