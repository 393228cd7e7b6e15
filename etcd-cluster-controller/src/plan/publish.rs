//! What the control plane is told: the endpoints, and whether etcd is ready. Both follow the wanted membership, and
//! never the health of the moment.

use super::in_use::{InUse, serves_at};
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

/// The endpoints are those of all voters. Once every Machine that stays has a healthy voter, only those of these
/// voters. A member whose Machine is being deleted retires when no API server uses it any longer.
///
/// The published list stays while the control plane rolls out, while there are surplus Machines, and while API servers
/// use endpoints and Machines are to be replaced. It stays until that is over, or until the next member can leave only
/// after the control plane has been told.
pub(super) fn publish(view: &View<'_>, goal: &Goal, next: &Plan) -> Publish {
    let observation = view.observation;
    let retires = |seat: &Seat<'_>| goal.retires(seat) && !retire::is_held_by_its_endpoint(view, seat);
    let staying: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| !retires(seat)).collect();
    let well = staying.iter().filter(|seat| seat.is_voter() && seat.counts).count();
    let status = observation.etcd.status.as_ref();
    let is_ready = status.is_some_and(|status| status.ready);
    let before = PublishedList::new(view, status.map_or("", |status| status.endpoints.as_str()));
    let in_use = InUse::of(view);
    // If only a person can go on with a rollout, the members stay as they are until then.
    let is_rolling = staying.iter().any(|seat| is_outdated(view, seat)) && !rollout::is_refused(view);
    let is_frozen = in_use.is_rolling_out() || (is_rolling && !in_use.is_empty());
    let is_kept = staying.len() > goal.voters || is_frozen;
    // The list stays only as long as more than half of it is served (rule 5).
    let is_served = before.served_by(|seat| !seat.is_unhealthy()) > before.urls.len() / 2;
    // A list that is published as Ready, that is in use, or that as many voters serve as are wanted, may be told at any
    // time.
    let may_be_told = is_ready || in_use.has_published() || before.served_by(|seat| seat.counts) >= goal.voters;
    let is_enough = well >= goal.voters;
    // A list that may not be told does not stay once enough voters are there for another one.
    let stays = is_kept && is_served && (may_be_told || !is_enough) && !rollout::must_be_told(view);
    let settled = well == staying.len() && well == goal.voters;
    let is_told = |seat: &Seat<'_>| before.endpoint(seat).is_some_and(|url| before.urls.contains(&url.as_str()));
    // A member whose Machine is being deleted never enters the list, and leaves it when other members are there.
    let is_over = settled || is_kept;
    let voters = || view.roster.voters().filter(|seat| !retires(seat) || (!is_over && is_told(seat)));
    let mut urls: Vec<String> = if stays {
        before.urls.iter().map(|url| (*url).to_owned()).collect()
    } else {
        voters().filter_map(|seat| before.endpoint(seat)).collect()
    };
    urls.sort();
    urls.dedup();
    // A new voter is published with its first healthy answer. If etcd were Ready before that, the control plane would
    // roll out twice.
    let complete = if is_kept { is_enough } else { settled && urls.len() == goal.voters };
    // The control plane is never told for the first time of members that are about to be replaced.
    let was_told = !in_use.is_empty() || status.is_some_and(|status| status.creation_complete);
    let complete = complete && (was_told || !is_rolling);
    let certificates = observation.certificates.serve(observation.now);
    let blocked = matches!(next, AnyPlan::Block(_));
    let deleting = observation.etcd.metadata.deletion_timestamp.is_some();
    let is_another = blocked && next.is_held_for(reasons::CLUSTER_ID_CHANGED);
    // After a move, the other management cluster reports whether the members are ready.
    let is_moved_away = next.is_held_for(reasons::MOVED_AWAY);
    Publish {
        endpoints: if urls.is_empty() { before.urls.join(",") } else { urls.join(",") },
        ready: complete && certificates && !deleting && !is_another && !is_moved_away,
        complete,
    }
}

/// The endpoints that the status has published so far.
struct PublishedList<'v, 'a> {
    view: &'v View<'a>,
    urls: Vec<&'v str>,
}

impl<'v, 'a> PublishedList<'v, 'a> {
    fn new(view: &'v View<'a>, urls: &'v str) -> Self {
        Self { view, urls: urls.split(',').filter(|url| !url.is_empty()).collect() }
    }

    /// How many of the published endpoints belong to voters that `counts` accepts.
    fn served_by(&self, counts: impl Fn(&Seat<'_>) -> bool) -> usize {
        self.view.roster.voters().filter(|seat| counts(seat) && self.is_served_by(seat)).count()
    }

    /// Whether a voter serves one of the published endpoints. `addressTypes` may have changed since it was published.
    fn is_served_by(&self, seat: &Seat<'_>) -> bool {
        let serves = || serves_at(self.view, seat).into_iter().filter(|_| seat.is_healthy());
        self.endpoint(seat).into_iter().chain(serves()).any(|url| self.urls.contains(&url.as_str()))
    }

    /// The published URL of a voter. A URL is published once the voter answers there, and stays as long as it is a
    /// voter: a client skips an endpoint that is down, but a changed list makes the whole control plane roll out.
    fn endpoint(&self, seat: &Seat<'_>) -> Option<String> {
        let observation = self.view.observation;
        let present = observation.client_url(seat.machine?);
        if seat.is_healthy() {
            return present;
        }
        // Its Machine may have got an address at which nothing answers yet, or at which another member answers.
        let recorded = seat.id().and_then(|id| observation.recorded(id)).map(|member| member.client_url.clone());
        recorded.into_iter().chain(present).find(|url| self.urls.contains(&url.as_str()))
    }
}
