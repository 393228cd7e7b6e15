//! Changes the membership of etcd, by gRPC. Before each call, a linearizable list is read through the same member. For
//! a removal, it has to be the list that the permission was made from: if a member was added or removed in between,
//! nothing is done. Nor is anything done if the members, asked once more, do not permit the removal any longer.

use super::Outcome;
use crate::context::Context;
use crate::observation::Observation;
use crate::observation::host::host_of;
use crate::observe::{ca_of, observe_again};
use crate::pki::{Client as Purpose, new_client};
use crate::plan::{Hold, Plan, Step, View, plan};
use crate::quorum::MayRemove;
use crate::roster::Seat;
use crate::roster::strangers::serves_at;
use api::conditions::reasons;
use controller_support::{Error, Result};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use std::collections::BTreeSet;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::time::timeout;

/// A member that does not accept a connection within this time is skipped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A member that does not list the members within this time is skipped: it is the time that a member has to answer a
/// health check.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for the same list right before a removal, over the connection that is there. Another voter may fail in it.
const LIST_AGAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd itself gives up on a request after seven seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// What etcd answers (`ErrUnhealthy`) until all members have been connected to one another for five seconds.
const NOT_SETTLED: &str = "etcdserver: unhealthy cluster";

/// Removes a member. etcd may have carried out a call whose answer is lost: the next reconcile reads the list.
///
/// A member that answered the look that permits the removal may have failed since, and the objects may have changed:
/// other members were waited for, the API server was slow, or a voter was silent to a new connection. So once the
/// connection is there, all is observed again, and the plan has to come out the same. Then the same voter lists the
/// members again, within a short time.
pub(super) async fn remove(context: &Context, observation: &Observation, permission: &MayRemove) -> Result<Outcome> {
    let id = permission.member_id();
    let (mut client, _) = connect(context, observation, |member| member != id).await?;
    if !is_still_planned(context, observation, permission).await? {
        let message = "a look right before the removal does not permit it any more; planning again in 1 s";
        let hold = Hold::new(reasons::WAITING_FOR_SAFE_REMOVAL, message);
        return Ok(Outcome::Waiting(hold.again(Duration::from_secs(1))));
    }
    if !permission.was_made_from(&list(&mut client, LIST_AGAIN_TIMEOUT).await?) {
        return Ok(Outcome::Outdated);
    }
    match timeout(REQUEST_TIMEOUT, client.member_remove(id)).await {
        Ok(Err(etcd_client::Error::GRpcStatus(status))) if status.message().contains(NOT_SETTLED) => {
            let message =
                format!("etcd does not let member {id:x} go yet: its members have not been connected for 5 s");
            Ok(Outcome::Waiting(Hold::new(reasons::WAITING_FOR_SAFE_REMOVAL, message).again(Duration::from_secs(1))))
        }
        Ok(Ok(_)) => Ok(Outcome::Done),
        Ok(Err(error)) => Err(Error::NotReady(format!("removing a member: {error}"))),
        Err(_) => Err(Error::NotReady(format!("removing a member: no answer within {} s", REQUEST_TIMEOUT.as_secs()))),
    }
}

/// Whether the same removal comes out again now.
async fn is_still_planned(context: &Context, observation: &Observation, permission: &MayRemove) -> Result<bool> {
    let again = observe_again(context, observation).await?;
    let next = plan(&again).next;
    let is_same = matches!(&next, Plan::Do(Step::RemoveMember(same)) if same == permission);
    if !is_same {
        tracing::info!(?permission, ?next, "off: it does not come out the same right before it");
    }
    Ok(is_same && context.shared.scope.reconciles(again.etcd.as_ref()))
}

/// Moves leadership to another member. Only the leader can hand leadership over.
pub(super) async fn move_leader(context: &Context, observation: &Observation, from: u64, to: u64) -> Result<Outcome> {
    let (mut client, listed) = connect(context, observation, |member| member == from).await?;
    if !listed.contains(&(to, false)) {
        return Ok(Outcome::Outdated);
    }
    answered("moving leadership", REQUEST_TIMEOUT, client.move_leader(to)).await?;
    Ok(Outcome::Done)
}

/// The IDs of all members, and whether they are learners.
type Listed = BTreeSet<(u64, bool)>;

/// Connects to a voter that `wanted` accepts and that lists the members: the leader first, then those that are well.
/// Whether etcd itself refuses a call to protect the quorum depends on the connections of the asked member, and only the
/// leader has connections to all members. A voter that no Machine carries can be asked like any other, and has to be
/// asked if it leads.
///
/// The checks of a member's health use a connection that they keep. So a healthy voter may be one that accepts no new
/// connection, because of a firewall or for want of file descriptors. Such a voter is skipped.
async fn connect(
    context: &Context,
    observation: &Observation,
    wanted: impl Fn(u64) -> bool,
) -> Result<(Client, Listed)> {
    let view = View::new(observation);
    let cluster = view.cluster().map_or("", |cluster| cluster.name.as_str());
    let Some(ca) = ca_of(context, &observation.etcd, cluster) else {
        return Err(Error::NotReady("the CA of etcd cannot be read".to_owned()));
    };
    let now = OffsetDateTime::from_unix_timestamp(observation.now.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let identity = new_client(&ca, Purpose::Controller, now).map_err(|error| Error::Internal(error.to_string()))?;
    let mut voters: Vec<&Seat<'_>> = view.roster.voters().filter(|seat| seat.id().is_some_and(&wanted)).collect();
    voters.sort_by_key(|seat| (!seat.leads(), !seat.is_well()));
    let urls: Vec<String> = voters.iter().filter_map(|seat| serves_at(observation, seat)).collect();
    let mut failures = Vec::new();
    for url in urls {
        let tls = TlsOptions::new()
            .domain_name(host_of(&url).unwrap_or_default())
            .ca_certificate(Certificate::from_pem(&ca.cert))
            .identity(Identity::from_pem(&identity.cert, &identity.key));
        let options = ConnectOptions::new().with_tls(tls).with_connect_timeout(CONNECT_TIMEOUT);
        match listed_by(&url, options).await {
            Ok(listed) => return Ok(listed),
            Err(error) => failures.push(format!("{url}: {error}")),
        }
    }
    let failures = if failures.is_empty() { "no healthy voter has an address".to_owned() } else { failures.join("; ") };
    Err(Error::NotReady(format!("asking etcd: {failures}")))
}

/// A client of the voter at this URL, and the members as it lists them. The library connects only for the first request.
async fn listed_by(url: &str, options: ConnectOptions) -> Result<(Client, Listed)> {
    let mut client = answered("connecting", CONNECT_TIMEOUT, Client::connect([url], Some(options))).await?;
    let listed = list(&mut client, LIST_TIMEOUT).await?;
    Ok((client, listed))
}

/// The members. The library lists what the asked member knows, which may be old. A linearizable read through the same
/// member first makes sure that the member has caught up.
async fn list(client: &mut Client, limit: Duration) -> Result<Listed> {
    answered("listing the members", limit, async {
        client.get("etcd-cluster-controller", None).await?;
        let list = client.member_list().await?;
        Ok(list.members().iter().map(|member| (member.id(), member.is_learner())).collect())
    })
    .await
}

async fn answered<T>(
    doing: &str,
    limit: Duration,
    call: impl Future<Output = Result<T, etcd_client::Error>>,
) -> Result<T> {
    match timeout(limit, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Error::NotReady(format!("{doing}: {error}"))),
        Err(_) => Err(Error::NotReady(format!("{doing}: no answer within {} s", limit.as_secs()))),
    }
}
