//! Every list of endpoints that an API server uses, or that the next one gets, keeps enough live ones: one more than the
//! failures that a cluster of that size survives. What scenarios have made silent is not held against us, as long as we take
//! nothing away beside it.

use super::{Finding, Moment, Rule};
use crate::observer::record::{Event, Listed};
use crate::observer::state::{EtcdView, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// A list that is written at the moment of a promotion may come before the promotion here.
const SEEN: SignedDuration = SignedDuration::from_secs(1);

#[derive(Default)]
pub(super) struct Endpoints {
    /// Lists that had too few when they, or the voters, last changed: since when, by cluster and user.
    few: BTreeMap<(String, String), Timestamp>,
}

impl Rule for Endpoints {
    fn name(&self) -> &'static str {
        "too few live endpoints"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let now = moment.now();
        let mut findings = Vec::new();
        self.few.retain(|(etcd, user), since| {
            let Some(view) = moment.after.etcds.get(etcd).filter(|view| !moment.after.is_ending(view)) else {
                return false;
            };
            let lists = lists(moment.after, view);
            let Some((_, list)) = lists.into_iter().find(|(of, _)| *of == user) else { return false };
            let Some(what) = too_few(moment.after, view, list, now) else { return false };
            if now.duration_since(*since) < SEEN {
                return true;
            }
            findings.push(Finding::about(etcd, "", format!("{user} uses {list:?}: {what}")).since(*since));
            false
        });
        let lists_change = matches!(moment.line.event, Event::ControlPlane(_) | Event::ApiServer(_));
        if moment.new_list().is_some() || lists_change {
            let clusters = moment.after.etcds.iter().filter(|(_, view)| !moment.after.is_ending(view));
            for (name, view) in clusters.filter(|(_, view)| !view.list.is_empty()) {
                for (user, list) in lists(moment.after, view) {
                    if too_few(moment.after, view, list, now).is_some() && has_changed(moment, name, user, list) {
                        self.few.entry((name.clone(), user.clone())).or_insert(now);
                    }
                }
            }
        }
        findings
    }
}

/// Whether this line has changed the list, or who votes: what a scenario's faults do later is not looked at again.
fn has_changed(moment: &Moment<'_>, etcd: &String, user: &String, list: &[String]) -> bool {
    let Some(before) = moment.before.etcds.get(etcd) else { return true };
    let voters = |view: &EtcdView| view.voters().map(|voter| voter.id.clone()).collect::<Vec<_>>();
    let same_voters = moment.after.etcds.get(etcd).is_some_and(|after| voters(before) == voters(after));
    let same_list = lists(moment.before, before).into_iter().any(|(of, before)| of == user && before == list);
    !same_voters || !same_list
}

/// Who uses which endpoints of a cluster.
fn lists<'a>(state: &'a State, view: &EtcdView) -> Vec<(&'a String, &'a [String])> {
    let cluster = &view.object.cluster;
    let planes = state.control_planes.values().filter(|it| it.cluster == *cluster);
    let servers = state.api_servers.values().filter(|it| it.cluster == *cluster);
    let planes = planes.map(|it| (&it.name, it.endpoints.as_slice()));
    let all = planes.chain(servers.map(|it| (&it.name, it.endpoints.as_slice())));
    all.filter(|(_, list)| !list.is_empty()).collect()
}

/// What is wrong with a list, if anything is.
fn too_few(state: &State, view: &EtcdView, list: &[String], now: Timestamp) -> Option<String> {
    let voter = |url: &String| view.voters().find(|voter| voter.urls.contains(url));
    let live = list.iter().filter(|url| voter(url).is_some_and(|voter: &Listed| view.was_live(voter, now))).count();
    let excused = |url: &&String| {
        let machine = view.seats.get(*url).map(|seat| &seat.machine);
        machine.is_some_and(|machine| state.is_excused(machine, now))
    };
    let is_dead = |url: &&String| !voter(url).is_some_and(|voter| view.was_live(voter, now));
    let excused = list.iter().filter(is_dead).filter(excused).count();
    let wanted = ((list.len() - 1) / 2 + 1).min(list.len() - excused);
    (live < wanted).then(|| format!("{live} of {} are live voters, at least {wanted} should be", list.len()))
}
