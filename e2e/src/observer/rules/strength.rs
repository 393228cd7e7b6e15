//! After any change of the voters the cluster survives at least as many failures as before, or as many as a healthy cluster
//! of the wanted size.

use super::{Finding, Moment, Rule, names};
use crate::observer::record::Listed;
use crate::observer::state::EtcdView;
use k8s_openapi::jiff::Timestamp;

pub(super) struct Strength;

impl Rule for Strength {
    fn name(&self) -> &'static str {
        "weaker than before"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let Some((member, before, after)) = moment.new_list() else { return Vec::new() };
        let left: Vec<&Listed> = before.voters().filter(|voter| !after.votes(&voter.id)).collect();
        let came: Vec<&Listed> = after.voters().filter(|voter| !before.votes(&voter.id)).collect();
        if before.list.is_empty() || left.is_empty() && came.is_empty() {
            return Vec::new();
        }
        // Who leaves because a scenario says so is not our doing.
        let excused = |voter: &&Listed| moment.after.is_excused(&before.machine_of(voter), moment.now());
        if came.is_empty() && left.iter().all(excused) {
            return Vec::new();
        }
        let (now, wanted) = (moment.now(), (after.object.replicas.saturating_sub(1) / 2).cast_signed());
        let (was, is) = (survives(before, now), survives(after, now));
        if is >= was.min(wanted) {
            return Vec::new();
        }
        let what = format!(
            "the cluster survived {was} failures and survives {is}: [{}] left, [{}] came, [{}] vote",
            names(left.iter().copied()),
            names(came.iter().copied()),
            names(after.voters())
        );
        let machine = left.first().or(came.first()).map_or_else(String::new, |voter| before.machine_of(voter));
        vec![Finding::about(&member.etcd, &machine, what)]
    }
}

/// Voters that are alive beyond a quorum; negative without one.
fn survives(view: &EtcdView, now: Timestamp) -> isize {
    let voters: Vec<&Listed> = view.voters().collect();
    let alive = voters.iter().filter(|voter| view.was_live(voter, now)).count();
    alive.cast_signed() - (voters.len() / 2 + 1).cast_signed()
}
