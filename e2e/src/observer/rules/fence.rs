//! A voter is removed only after `status.operation` has named it. This fences the removal, whichever manager does it.

use super::{Finding, Moment, Rule};
use crate::observer::record::{Etcd, Event};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// How late a status may be seen: it is written before the member is removed, but may be seen a moment after the
/// removal.
const KNOWN: SignedDuration = SignedDuration::from_secs(1);

#[derive(Default)]
pub(super) struct Fence {
    /// Clusters and members that a status has named.
    named: BTreeSet<(String, String)>,
    /// Voters that have left without being named: when, cluster, member, Machine.
    gone: Vec<(Timestamp, String, String, String)>,
}

impl Rule for Fence {
    fn name(&self) -> &'static str {
        "removed without being announced"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        if let Some((etcd, member)) = announced(moment) {
            self.named.insert((etcd.name.clone(), member.clone()));
        }
        if let Some((member, before, after)) = moment.new_list() {
            for voter in before.voters().filter(|voter| !after.list.iter().any(|listed| listed.id == voter.id)) {
                let machine = before.machine_of(voter);
                if !moment.after.is_removed_by_hand(&machine) {
                    self.gone.push((moment.now(), member.etcd.clone(), voter.id.clone(), machine));
                }
            }
        }
        let named = &self.named;
        self.gone.retain(|(_, etcd, id, _)| !named.contains(&(etcd.clone(), id.clone())));
        let due: Vec<_> = self.gone.extract_if(.., |(at, ..)| is_known(moment, *at)).collect();
        let finding = |(at, etcd, id, machine): (Timestamp, String, String, String)| {
            let what = format!("voter {id} was removed, and no status.operation had named it");
            Finding::about(&etcd, &machine, what).since(at)
        };
        due.into_iter().map(finding).collect()
    }
}

/// Whether every status that was written before this time is known.
pub(super) fn is_known(moment: &Moment<'_>, at: Timestamp) -> bool {
    matches!(moment.line.event, Event::Ended) || moment.now().duration_since(at) >= KNOWN
}

/// A status that announces a removal, and the member that it names.
pub(super) fn announced<'a>(moment: &Moment<'a>) -> Option<(&'a Etcd, &'a String)> {
    let Event::Etcd(etcd) = &moment.line.event else { return None };
    let operation = etcd.operation.as_ref().filter(|operation| operation.what == "RemoveMember")?;
    Some((etcd, &operation.member))
}
