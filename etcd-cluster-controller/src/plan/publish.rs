//! What the control plane is told: endpoints and whether etcd is ready. They follow the membership that is wanted, and never
//! the health of the moment.

use super::{Goal, Plan, View};
use crate::observation::Certificates;
use crate::roster::Seat;
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
/// Machines are on their way out retire when no API server uses them any longer. While there are Machines too many, what was
/// told stays until it is settled which of them go.
pub(super) fn publish(view: &View<'_>, goal: &Goal, next: &Plan) -> Publish {
    let observation = view.observation;
    let staying: Vec<&Seat<'_>> = view.roster.seats.iter().filter(|seat| !goal.retires(seat)).collect();
    let all_well = staying.iter().all(|seat| seat.is_voter() && seat.counts);
    let status = observation.etcd.status.as_ref();
    let before = status.map_or("", |status| status.endpoints.as_str());
    let too_many = staying.len() > goal.voters && !before.is_empty();
    let settled = all_well && staying.len() == goal.voters;
    let voters = || view.roster.voters().filter(|seat| !(settled && goal.retires(seat)));
    let mut urls: Vec<String> = if too_many {
        before.split(',').map(str::to_owned).collect()
    } else {
        voters().filter_map(|seat| endpoint(view, seat, before)).collect()
    };
    urls.sort();
    urls.dedup();
    let told = || all_well && status.is_some_and(|status| status.ready);
    // A new voter is published with its first good answer. Ready before that would roll the control plane twice.
    let complete = if too_many { told() } else { settled && urls.len() == goal.voters };
    let certificates =
        matches!(observation.certificates, Certificates::Ca { control_plane_ca: true, staged_client: true, .. });
    let blocked = matches!(next, AnyPlan::Block(_));
    let deleting = observation.etcd.metadata.deletion_timestamp.is_some();
    Publish {
        endpoints: if urls.is_empty() { before.to_owned() } else { urls.join(",") },
        ready: complete && certificates && !deleting && !(blocked && is_identity(next)),
        complete,
    }
}

fn is_identity(next: &Plan) -> bool {
    next.hold().is_some_and(|hold| hold.reason == api::conditions::reasons::CLUSTER_ID_CHANGED)
}

/// Where a voter is said to be. It is published once it answers there, and stays as long as it is a voter: a client skips an
/// endpoint that is down, while a changed list would roll the whole control plane.
fn endpoint(view: &View<'_>, seat: &Seat<'_>, before: &str) -> Option<String> {
    let present = view.observation.client_url(seat.machine?);
    if seat.is_healthy() {
        return present;
    }
    // Its Machine may have been given an address at which nothing answers (yet), or another member.
    let recorded = seat.id().and_then(|id| view.observation.recorded(id)).map(|member| member.client_url.clone());
    let published = |url: &String| before.split(',').any(|known| known == url);
    recorded.into_iter().chain(present).find(published)
}
