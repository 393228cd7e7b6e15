//! Every list of endpoints that an API server uses, or that the next API server gets, keeps enough live endpoints: one
//! more than the failures that a cluster of that size survives. Endpoints that scenarios have made silent are not held
//! against us, unless we take away live ones as well.

use super::{Finding, Moment, Rule};
use crate::observer::record::Event;
use crate::observer::state::{EtcdView, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How soon a promotion is seen. A list that is written at the moment of a promotion may be seen before the promotion.
const SEEN: SignedDuration = SignedDuration::from_secs(1);

#[derive(Default)]
pub(super) struct Endpoints {
    /// Lists that had too few live endpoints when the list or the voters last changed: since when, by cluster and user
    /// of the list.
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
            let Some(view) = moment.after.etcds.get(etcd).filter(|view| counts(moment.after, view)) else {
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
            let clusters = moment.after.etcds.iter().filter(|(_, view)| counts(moment.after, view));
            for (name, view) in clusters.filter(|(_, view)| !view.list.is_empty()) {
                for (user, list) in lists(moment.after, view) {
                    if too_few(moment.after, view, list, now).is_some() && has_lost(moment, name, user, list) {
                        self.few.entry((name.clone(), user.clone())).or_insert(now);
                    }
                }
            }
        }
        findings
    }
}

/// Whether lists have to keep live endpoints: not when the cluster is being deleted, and not when a person has said
/// that they need not.
fn counts(state: &State, view: &EtcdView) -> bool {
    !state.is_ending(view) && !view.object.ignores_in_use
}

/// Whether this line has brought the list, or has taken live endpoints from it. An endpoint that a scenario had already
/// made silent does not become our doing when its member leaves.
fn has_lost(moment: &Moment<'_>, etcd: &String, user: &String, list: &[String]) -> bool {
    let (Some(before), Some(after)) = (moment.before.etcds.get(etcd), moment.after.etcds.get(etcd)) else {
        return true;
    };
    let same_list = lists(moment.before, before).into_iter().any(|(of, before)| of == user && before == list);
    let live =
        |state: &State, view: &EtcdView| list.iter().filter(|url| is_live(state, view, url, moment.now())).count();
    !same_list || live(moment.before, before) > live(moment.after, after)
}

/// Whether the member behind an endpoint is a voter and alive.
fn is_live(state: &State, view: &EtcdView, url: &String, now: Timestamp) -> bool {
    let voter = view.voters().find(|voter| voter.urls.contains(url));
    voter.is_some_and(|voter| state.was_live(view, voter, now))
}

/// The lists of a cluster's endpoints, each with its user.
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
    let live = list.iter().filter(|url| is_live(state, view, url, now)).count();
    let excused = |url: &&String| {
        let machine = view.seats.get(*url).map(|seat| &seat.machine);
        machine.is_some_and(|machine| state.is_excused(machine, now))
    };
    let is_dead = |url: &&String| !is_live(state, view, url, now);
    let excused = list.iter().filter(is_dead).filter(excused).count();
    let wanted = ((list.len() - 1) / 2 + 1).min(list.len() - excused);
    (live < wanted).then(|| format!("{live} of {} are live voters, at least {wanted} should be", list.len()))
}
