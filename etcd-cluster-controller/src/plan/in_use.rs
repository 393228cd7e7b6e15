//! The endpoints that API servers may be using, and who of the members serves them (rule 5).

use super::View;
use crate::roster::Seat;
use api::names;
use kube::ResourceExt;
use std::collections::BTreeSet;

/// The union of all lists of endpoints that API servers may be using: of the single lists nothing is known.
pub(super) struct InUse<'v, 'a> {
    view: &'v View<'a>,
    urls: BTreeSet<&'a str>,
}

impl<'v, 'a> InUse<'v, 'a> {
    pub(super) fn of(view: &'v View<'a>) -> Self {
        let urls = view.observation.endpoints_in_use().unwrap_or_default();
        Self { view, urls: urls.split(',').filter(|url| !url.is_empty()).collect() }
    }

    /// No API server uses any, as far as the Cluster hook has said.
    pub(super) fn is_empty(&self) -> bool {
        self.urls.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.urls.len()
    }

    /// Whether it is not known what API servers use: there may be some since the members were there for the first time, and
    /// nobody has ever said what they use.
    pub(super) fn is_unknown(&self) -> bool {
        let observation = self.view.observation;
        let is_said = observation.etcd.annotations().contains_key(names::ENDPOINTS_IN_USE_ANNOTATION);
        let is_used = self.view.cluster().is_some_and(|cluster| cluster.control_plane.is_some());
        let was_ready = observation.etcd.status.as_ref().is_some_and(|status| status.creation_complete);
        self.is_empty() && !is_said && is_used && was_ready
    }

    /// Whether this is one of them.
    pub(super) fn has_url(&self, url: &str) -> bool {
        self.urls.contains(url)
    }

    /// Whether a member serves one of them.
    pub(super) fn has(&self, seat: &Seat<'_>) -> bool {
        let url = seat.machine.and_then(|machine| self.view.observation.client_url(machine));
        url.is_some_and(|url| self.urls.contains(url.as_str()))
    }

    /// How many of them are served by voters that are well and that count.
    pub(super) fn alive(&self, counts: impl Fn(&Seat<'_>) -> bool) -> usize {
        self.view.roster.voters().filter(|seat| seat.is_well() && counts(seat) && self.has(seat)).count()
    }

    /// Whether so many may be dead: as many as the shortest list survives, which is taken to be as long as is wanted now. After
    /// `replicas` was raised, API servers that have not rolled out yet may use a shorter one.
    pub(super) fn survives(&self, dead: usize) -> bool {
        dead <= self.len().min(self.view.wanted()).saturating_sub(1) / 2
    }

    /// Whether the control plane has yet to roll out with what is published: it uses a member that is not among that.
    pub(super) fn is_behind(&self) -> bool {
        let status = self.view.observation.etcd.status.as_ref();
        let published = status.map_or("", |status| status.endpoints.as_str());
        let is_published = |url: &str| published.split(',').any(|other| other == url);
        let served = self.view.roster.voters().filter(|seat| self.has(seat));
        let mut urls = served.filter_map(|seat| self.view.observation.client_url(seat.machine?));
        urls.any(|url| !is_published(&url))
    }
}
