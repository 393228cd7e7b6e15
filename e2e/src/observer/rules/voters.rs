//! Every voter answers, unless a scenario has made it silent. A machine that goes before its member has left, or a
//! member that ends by itself, costs the cluster one of the failures that it should survive.

use super::{Finding, Moment, Rule};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// A silence as long as this is not a slow answer, not even on a busy computer.
const GRACE: SignedDuration = SignedDuration::from_secs(10);
/// How long a member that leaves may be silent before it is seen to have left.
const LEAVES: SignedDuration = SignedDuration::from_secs(2);

#[derive(Default)]
pub(super) struct Voters {
    /// Silences that were found: cluster, member, since when.
    found: BTreeSet<(String, String, Timestamp)>,
}

impl Rule for Voters {
    fn name(&self) -> &'static str {
        "silent voter"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (name, view) in moment.clusters() {
            let after = moment.after.etcds.get(name);
            for voter in view.voters() {
                let Some(since) = moment.before.silent_since(view, voter, moment.now()) else { continue };
                let leaves = after.is_some_and(|after| !after.list.iter().any(|listed| listed.id == voter.id));
                let limit = if leaves { LEAVES } else { GRACE };
                // While no member answers, none can report that this one has left.
                let told = || view.seats.values().filter(|seat| view.is_live(seat)).map(|seat| seat.since).min();
                let since = if leaves { told().unwrap_or(moment.now()).max(since) } else { since };
                let lasts = moment.now().duration_since(since);
                if lasts >= limit && self.found.insert((name.clone(), voter.id.clone(), since)) {
                    let left = if leaves { ", before it left" } else { "" };
                    let what = format!("voter {} is silent{left}, and no scenario has made it so", voter.name);
                    findings.push(Finding::about(name, &view.machine_of(voter), what).since(since));
                }
            }
        }
        findings
    }
}
