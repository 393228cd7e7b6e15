//! The lists of endpoints that API servers may be using, and which members serve them (rule 5).

use super::View;
use crate::roster::Seat;
use crate::roster::strangers::answers_at;
use api::endpoints::{EndpointList, EndpointLists, parse_list};
use api::names;
use kube::ResourceExt;
use std::collections::BTreeSet;

/// Every list of endpoints that API servers may be using.
pub(super) struct InUse<'v, 'a> {
    view: &'v View<'a>,
    lists: &'v EndpointLists,
}

impl<'v, 'a> InUse<'v, 'a> {
    pub(super) fn of(view: &'v View<'a>) -> Self {
        Self { view, lists: view.in_use.get_or_init(|| lists(view)) }
    }

    /// Whether API servers use no list, as far as the Cluster hook has said.
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Whether it is not known which endpoints API servers use: there may have been API servers since etcd was complete
    /// for the first time, and the Cluster hook has never recorded what they use.
    pub(super) fn is_unknown(&self) -> bool {
        let observation = self.view.observation;
        let is_said = observation.etcd.annotations().contains_key(names::ENDPOINTS_IN_USE_ANNOTATION);
        let is_used = self.view.cluster().is_some_and(|cluster| cluster.control_plane.is_some());
        let was_ready = observation.etcd.status.as_ref().is_some_and(|status| status.creation_complete);
        self.is_empty() && !is_said && is_used && was_ready && !is_ignored(self.view)
    }

    /// Whether API servers may be using the published list.
    pub(super) fn has_published(&self) -> bool {
        let published = published(self.view);
        self.lists.iter().any(|list| *list == published)
    }

    /// Whether a member serves an endpoint of one of the lists.
    pub(super) fn has(&self, seat: &Seat<'_>) -> bool {
        self.of_seat(seat).next().is_some()
    }

    /// A list that would have too few live endpoints without a member, and how many it would have. Too few are fewer
    /// than f + 1 endpoints of voters that are well. `before`: a member that has left by then.
    pub(super) fn endangered_by(&self, seat: &Seat<'_>, before: Option<&Seat<'_>>) -> Option<(&EndpointList, usize)> {
        let mut without = self.of_seat(seat).map(|list| (list, self.alive_without(list, seat, before)));
        without.find(|(list, alive)| *alive <= list.len() / 2)
    }

    /// A list that would have no live endpoint at all without a member that no Machine carries. Other members of that
    /// kind count as long as they answer. Only their own client URLs say where they serve.
    pub(super) fn emptied_by(&self, seat: &Seat<'_>) -> Option<&EndpointList> {
        let serves = |list: &EndpointList, seat: &Seat<'_>| match &seat.member {
            Some((_, member)) if seat.machine.is_none() => member.client_urls.iter().any(|url| list.contains(url)),
            _ => has_one_of(list, &serves_at(self.view, seat)),
        };
        let is_alive = |other: &Seat<'_>| {
            let answers = other.is_well() || answers_at(self.view.observation, other).is_some();
            answers && other.id() != seat.id()
        };
        let is_served =
            |list: &EndpointList| self.view.roster.voters().any(|other| is_alive(other) && serves(list, other));
        self.lists.iter().find(|list| serves(list, seat) && !is_served(list))
    }

    /// How many endpoints the longest list has.
    pub(super) fn longest(&self) -> usize {
        self.lists.iter().map(EndpointList::len).max().unwrap_or_default()
    }

    /// The lists that have a member's endpoint.
    fn of_seat(&self, seat: &Seat<'_>) -> impl Iterator<Item = &EndpointList> {
        let urls = self.urls(seat);
        self.lists.iter().filter(move |list| has_one_of(list, &urls))
    }

    fn alive_without(&self, list: &EndpointList, seat: &Seat<'_>, before: Option<&Seat<'_>>) -> usize {
        let goes = |other: &Seat<'_>| before.into_iter().chain([seat]).any(|gone| gone.id() == other.id());
        let others = self.view.roster.voters().filter(|other| !goes(other) && other.is_well());
        others.filter(|other| has_one_of(list, &serves_at(self.view, other))).count()
    }

    fn urls(&self, seat: &Seat<'_>) -> BTreeSet<String> {
        let member = seat.member.as_ref().map(|(_, member)| member);
        seat.machine.map(|machine| self.view.observation.may_serve_at(machine, member)).unwrap_or_default()
    }

    /// Whether the control plane has received the published list, and some API servers may still use another one.
    pub(super) fn is_rolling_out(&self) -> bool {
        self.lists.iter().count() > 1 && self.has_published()
    }

    /// Whether the control plane has yet to roll out with the published list: it is rolling out, it is about to receive
    /// the list, or it uses a member that is not in the list.
    pub(super) fn is_behind(&self) -> bool {
        let published = published(self.view);
        let is_ready = self.view.observation.etcd.status.as_ref().is_some_and(|status| status.ready);
        let is_offered = !self.is_empty() && is_ready && !self.has_published();
        let mut served = self.view.roster.voters().filter(|seat| self.has(seat)).map(|seat| self.urls(seat));
        self.is_rolling_out() || is_offered || served.any(|urls| !has_one_of(&published, &urls))
    }
}

/// The URLs at which the member of a seat serves clients. Empty if no Machine carries it.
pub(super) fn serves_at(view: &View<'_>, seat: &Seat<'_>) -> BTreeSet<String> {
    let member = seat.machine.zip(seat.member.as_ref());
    member.map(|(machine, (_, member))| view.observation.serves_at(machine, member)).unwrap_or_default()
}

fn has_one_of(list: &EndpointList, urls: &BTreeSet<String>) -> bool {
    urls.iter().any(|url| list.contains(url))
}

fn lists(view: &View<'_>) -> EndpointLists {
    let all = EndpointLists::parse(view.observation.endpoints_in_use().unwrap_or_default());
    if !is_ignored(view) {
        return all;
    }
    // Only the published list still counts: the next rollout keeps its endpoints alive nevertheless.
    let published = published(view);
    all.iter().filter(|list| **list == published).cloned().collect()
}

fn published(view: &View<'_>) -> EndpointList {
    let status = view.observation.etcd.status.as_ref();
    parse_list(status.map_or("", |status| status.endpoints.as_str()))
}

/// Whether a person has said, for the present generation of the spec, that no API server needs endpoints that are not
/// published any more.
fn is_ignored(view: &View<'_>) -> bool {
    let etcd = &view.observation.etcd;
    let named = etcd.annotations().get(names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION);
    named.is_some() && named == etcd.metadata.generation.map(|generation| generation.to_string()).as_ref()
}
