//! After any change of the voters, the cluster survives at least as many failures as before, or as many as a healthy
//! cluster of the wanted size. With `maxSurge: 0`, it may survive one less while a member is replaced.

use super::{Finding, Moment, Rule, names};
use crate::observer::record::{Event, Listed};
use crate::observer::state::{EtcdView, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A voter that answers within this time after a change, or after it was first asked, was alive at the change.
const CONFIRMED: SignedDuration = SignedDuration::from_secs(3);
/// How long that may take in all, also for a member that the observer could not ask before it voted. A Machine may
/// report its address only then. If it reports none for this long, the member counts as not alive.
const LONGEST: SignedDuration = SignedDuration::from_secs(15);

#[derive(Default)]
pub(super) struct Strength {
    /// Changes that may have made a cluster weaker.
    doubts: Vec<Doubt>,
}

struct Doubt {
    at: Timestamp,
    etcd: String,
    machine: String,
    /// The voters after the change, and the IDs of the members that were alive.
    voters: Vec<String>,
    alive: Vec<String>,
    /// IDs of learners that were promoted before the observer had asked them. The leader has heard from such a member,
    /// because etcd promotes no other. On a busy computer, its first answer to the observer takes some seconds.
    unasked: Vec<String>,
    /// Failures that the cluster survived before.
    was: isize,
    /// Failures that the cluster has to survive.
    wanted: isize,
    change: String,
}

impl Rule for Strength {
    fn name(&self) -> &'static str {
        "weaker than before"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.doubts.retain_mut(|doubt| {
            let Some(view) = moment.after.etcds.get(&doubt.etcd) else { return false };
            let heard = view.seats.values().filter(|seat| view.is_live(seat)).filter_map(|seat| seat.status());
            doubt.alive.extend(heard.map(|status| status.id.clone()));
            if doubt.survives() >= doubt.wanted {
                return false;
            }
            if moment.now() >= doubt.ends(moment.after, view, moment.now()) || matches!(moment.line.event, Event::Ended)
            {
                let what = format!(
                    "the cluster survived {} failures and survives {}: {}",
                    doubt.was,
                    doubt.survives(),
                    doubt.change
                );
                findings.push(Finding::about(&doubt.etcd, &doubt.machine, what).since(doubt.at));
                return false;
            }
            true
        });
        self.doubts.extend(doubt(moment));
        findings
    }
}

impl Doubt {
    /// Live voters beyond a quorum. Negative without a quorum.
    fn survives(&self) -> isize {
        let alive = self.voters.iter().filter(|id| self.alive.contains(id)).count();
        alive.cast_signed() - quorum(self.voters.len())
    }

    /// When the doubt ends, because the observer has asked every voter for long enough.
    fn ends(&self, state: &State, view: &EtcdView, now: Timestamp) -> Timestamp {
        let unheard = view.voters().filter(|voter| self.voters.contains(&voter.id) && !self.alive.contains(&voter.id));
        let asked = unheard.map(|voter| match view.seat(voter) {
            Some(seat) if !self.unasked.contains(&voter.id) => seat.since,
            _ => now,
        });
        let since = asked.chain(state.held_up()).fold(self.at, Timestamp::max);
        (since + CONFIRMED).min(self.at + LONGEST)
    }
}

fn quorum(voters: usize) -> isize {
    (voters / 2 + 1).cast_signed()
}

/// The doubt that a new member list raises, if any.
fn doubt(moment: &Moment<'_>) -> Option<Doubt> {
    let (member, before, after) = moment.new_list()?;
    let now = moment.now();
    let left: Vec<&Listed> = before.voters().filter(|voter| !after.votes(&voter.id)).collect();
    let came: Vec<&Listed> = after.voters().filter(|voter| !before.votes(&voter.id)).collect();
    let was_learner = |voter: &&&Listed| before.list.iter().any(|listed| listed.id == voter.id);
    let unasked = came.iter().filter(was_learner).filter(|voter| before.seat(voter).is_none());
    let unasked = unasked.map(|voter| voter.id.clone()).collect();
    let answers = |voter: &&Listed| before.seat(voter).is_some_and(|seat| before.is_live(seat));
    // One that a scenario has made silent costs nothing, even if it answered until a moment ago.
    let costs_nothing = |voter: &&Listed| {
        let machine = before.machine_of(voter);
        moment.after.is_removed_by_hand(&machine) || moment.after.is_excused(&machine, now) && !answers(voter)
    };
    if before.list.is_empty() || came.is_empty() && left.iter().all(costs_nothing) {
        return None;
    }
    let was = alive(moment.before, before, now).len().cast_signed() - quorum(before.voters().count());
    let tolerated = (after.object.replicas.saturating_sub(1) / 2).cast_signed();
    // With `maxSurge: 0`, a member leaves before its replacement joins, but never two members.
    let goes_first = after.object.max_surge() == Some(0) && after.voters().count() + 1 == after.object.replicas;
    let wanted = was.min(if goes_first { tolerated - 1 } else { tolerated });
    let doubt = Doubt {
        at: now,
        etcd: member.etcd.clone(),
        machine: left.first().or(came.first()).map_or_else(String::new, |voter| before.machine_of(voter)),
        voters: after.voters().map(|voter| voter.id.clone()).collect(),
        alive: alive(moment.after, after, now),
        unasked,
        was,
        wanted,
        change: format!("[{}] left, [{}] came, [{}] vote", names(left), names(came), names(after.voters())),
    };
    (doubt.survives() < doubt.wanted).then_some(doubt)
}

/// IDs of the voters that are alive.
fn alive(state: &State, view: &EtcdView, now: Timestamp) -> Vec<String> {
    view.voters().filter(|voter| state.was_live(view, voter, now)).map(|voter| voter.id.clone()).collect()
}
