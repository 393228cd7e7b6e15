//! What the control plane is told: endpoints and whether etcd is ready. They follow the membership that is wanted, and never
//! the health of the moment.

use super::in_use::InUse;
use super::rollout::is_outdated;
use super::{Goal, Plan, View, retire, rollout};
use crate::roster::Seat;
use api::conditions::reasons;
use controller_support::plan::Plan as AnyPlan;

/// What the status tells the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// Client URLs, sorted, separated by commas. Never empty once there was one.
    pub endpoints: String,
    /// All wanted members are healthy voters, and the endpoints are theirs.
    pub ready: bool,
    /// The same without regard to certificates and deletion.
    pub complete: bool,
}

/// Endpoints are those of all voters. Once every Machine that stays has a healthy voter, they are those alone: members whose
/// Machines are on their way out retire when no API server uses them any longer. While the control plane rolls out, there are
/// Machines too many, or API servers use endpoints and Machines are to be replaced, what was told stays until that is over, or
/// until the next one can only go when the control plane has been told.
pub(super) fn publish(view: &View<'_>, goal: &Goal, next: &Plan) -> Publish {
    let observation = view.observation;
    let retires = |seat: &Seat<'_>| goal.retires(seat) && !retire::is_held_by_its_endpoint(view, seat);
    let staying: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| !retires(seat)).collect();
    let well = staying.iter().filter(|seat| seat.is_voter() && seat.counts).count();
    let status = observation.etcd.status.as_ref();
    let is_ready = status.is_some_and(|status| status.ready);
    let before = PublishedList::new(view, status.map_or("", |status| status.endpoints.as_str()));
    let in_use = InUse::of(view);
    // Where only a person goes on with a rollout, members stay as they are until then.
    let is_rolling = staying.iter().any(|seat| is_outdated(view, seat)) && !rollout::is_refused(view);
    let is_frozen = in_use.is_rolling_out() || (is_rolling && !in_use.is_empty());
    let is_kept = staying.len() > goal.voters || is_frozen;
    // As long as more than half of it is served (rule 5).
    let is_served = before.served_by(|seat| !seat.is_unhealthy()) > before.urls.len() / 2;
    // What is used already, or has as many as are wanted, may be told at any time.
    let may_be_told = is_ready || in_use.has_published() || before.served_by(|seat| seat.counts) >= goal.voters;
    let is_enough = well >= goal.voters;
    // What may not be told does not stay once something else may be told.
    let stays = is_kept && is_served && (may_be_told || !is_enough) && !rollout::must_be_told(view);
    let settled = well == staying.len() && well == goal.voters;
    let is_told = |seat: &Seat<'_>| before.endpoint(seat).is_some_and(|url| before.urls.contains(&url.as_str()));
    // A member on its way out never enters the list, and leaves it when others are there.
    let is_over = settled || is_kept;
    let voters = || view.roster.voters().filter(|seat| !retires(seat) || (!is_over && is_told(seat)));
    let mut urls: Vec<String> = if stays {
        before.urls.iter().map(|url| (*url).to_owned()).collect()
    } else {
        voters().filter_map(|seat| before.endpoint(seat)).collect()
    };
    urls.sort();
    urls.dedup();
    // A new voter is published with its first good answer. Ready before that would roll the control plane twice.
    let complete = if is_kept { is_enough } else { settled && urls.len() == goal.voters };
    // Nobody is told for the first time of members that are about to be replaced.
    let was_told = !in_use.is_empty() || status.is_some_and(|status| status.creation_complete);
    let complete = complete && (was_told || !is_rolling);
    let certificates = observation.certificates.serve(observation.now);
    let blocked = matches!(next, AnyPlan::Block(_));
    let deleting = observation.etcd.metadata.deletion_timestamp.is_some();
    let is_another = blocked && next.is_held_for(reasons::CLUSTER_ID_CHANGED);
    // Another management cluster says of its members whether they are ready.
    let is_moved_away = next.is_held_for(reasons::MOVED_AWAY);
    Publish {
        endpoints: if urls.is_empty() { before.urls.join(",") } else { urls.join(",") },
        ready: complete && certificates && !deleting && !is_another && !is_moved_away,
        complete,
    }
}

/// What the status has told so far.
struct PublishedList<'v, 'a> {
    view: &'v View<'a>,
    urls: Vec<&'v str>,
}

impl<'v, 'a> PublishedList<'v, 'a> {
    fn new(view: &'v View<'a>, urls: &'v str) -> Self {
        Self { view, urls: urls.split(',').filter(|url| !url.is_empty()).collect() }
    }

    /// How many of the endpoints are those of voters that count.
    fn served_by(&self, counts: impl Fn(&Seat<'_>) -> bool) -> usize {
        let voters = self.view.roster.voters().filter(|seat| counts(seat));
        let theirs = voters.filter_map(|seat| self.endpoint(seat));
        theirs.filter(|url| self.urls.contains(&url.as_str())).count()
    }

    /// Where a voter is said to be. It is published once it answers there, and stays as long as it is a voter: a client
    /// skips an endpoint that is down, while a changed list would roll the whole control plane.
    fn endpoint(&self, seat: &Seat<'_>) -> Option<String> {
        let observation = self.view.observation;
        let present = observation.client_url(seat.machine?);
        if seat.is_healthy() {
            return present;
        }
        // Its Machine may have been given an address at which nothing answers (yet), or another member.
        let recorded = seat.id().and_then(|id| observation.recorded(id)).map(|member| member.client_url.clone());
        recorded.into_iter().chain(present).find(|url| self.urls.contains(&url.as_str()))
    }
}
