//! Certificates of members expire, and etcd goes on. The Machines are replaced before the expiry, or after it if the
//! member is at fault.

use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{self, CRASH, ILLNESS, IMPATIENT, STALL};
use crate::rolls::{FOLLOWERS, changed, judged, nothing_is_lost, now, rolled};
use crate::scale::{LOAD, data_of};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::MemberStatus;
use e2e::bed::data::said;
use e2e::bed::illness::replace_certificate;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::tls::{Authority, Identity};
use e2e::until::until;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Days that the certificates are still valid: more than the default of `certificatesExpiryDays`, so no rollout begins.
const LEFT: i64 = 100;
/// Days until a certificate expires: it has already expired.
pub(crate) const EXPIRED: i64 = -2;

/// The certificates of three members expire soon. When fewer days are left than the spec requires, the Machines are
/// replaced one after the other. The new certificates are valid for a year, and the new Machines stay.
pub(crate) async fn that_expire(bed: &mut Bed) -> Result<()> {
    let handle = alone(bed, Manifests::new("certificates-expire", "demo")?).await?;
    let old = handle.etcd_machines().await?;
    until("the status says that they are good for a year", PATIENCE, async || expire_in(&handle, 364, 366).await)
        .await?;
    let authority = authority(&handle).await?;
    for member in handle.status().await?.members {
        let machine = bed.machines.get(&handle.namespace, &member.machine)?;
        replace_certificate(&machine, "server", &identity(&authority, &member, LEFT)?).await?;
    }
    // On an open connection, the manager does not see a member's new certificate. A restarted manager connects again.
    bed.kill_and_restart_manager(0).await?;
    until("the status says when they expire", PATIENCE, async || expire_in(&handle, LEFT - 2, LEFT).await).await?;
    ensure!(handle.etcd_machines().await? == old, "the Machines have been replaced too early");

    let writers =
        History::begin(bed.world(), &handle.namespace, &handle.staged_etcd_access().await?, FOLLOWERS).await?;
    changed(&handle, &json!({"rolloutBefore": {"certificatesExpiryDays": LEFT + 20}})).await?;
    until("it is said why the Machines are replaced", PATIENCE, async || {
        let conditions = handle.status().await?.conditions;
        let condition = conditions.iter().find(|condition| condition.type_ == "MachinesUpToDate");
        let message = &condition.context("no condition MachinesUpToDate")?.message;
        Ok(message.contains("certificates expire within 120 days").then_some(()))
    })
    .await?;
    let new = rolled(bed, &handle, &old, &writers).await?;
    judged(bed, &handle, writers, &[], old.len()).await?;
    until("the new ones are good for a year", PATIENCE, async || expire_in(&handle, 364, 366).await).await?;
    ensure!(handle.etcd_machines().await? == new, "the new Machines are replaced too");
    Ok(())
}

/// The server certificate of a follower has expired: the other members still hear it, and it stays. Its peer
/// certificate has expired too: it is replaced, and no other member is. Then the server certificates of all members
/// expire at the same time, which looks as if our clock were wrong: no member counts as unhealthy.
pub(crate) async fn that_have_expired(bed: &mut Bed) -> Result<()> {
    let handle = ill::up(bed, "certificates-expired", IMPATIENT).await?;
    let old = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &old).await?;
    let authority = authority(&handle).await?;
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    let status = handle.status().await?;
    let ill = status.members.iter().find(|member| !member.leader).context("no such member")?;
    let (machine, expired) = (bed.machines.get(&handle.namespace, &ill.machine)?, identity(&authority, ill, EXPIRED)?);
    bed.fault(&format!("{}: its certificates have expired", ill.machine), &[&machine], Silence::Lasting);
    replace_certificate(&machine, "server", &expired).await?;
    // On an open connection, the manager does not see a member's new certificate. A restarted manager connects again.
    bed.kill_and_restart_manager(0).await?;
    nobody_is_blamed(&handle, "the other members hear it").await?;
    ensure!(handle.etcd_machines().await? == old, "a member that the others hear is replaced");

    replace_certificate(&machine, "peer", &expired).await?;
    said(&machine, &["sh", "-c", CRASH]).await?;
    let machines = replaced(bed, &handle, &ill.machine).await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    of_all(bed, &handle, &authority).await
}

/// The server certificates of all members expire, and valid ones replace them.
async fn of_all(bed: &mut Bed, handle: &ClusterHandle, authority: &Authority) -> Result<()> {
    let members = handle.status().await?.members;
    let before = handle.etcd_machines().await?;
    let machines = bed.machines_of(&handle.namespace, members.iter().map(|member| &member.machine))?;
    let all: Vec<_> = machines.iter().collect();
    bed.fault("what all members show to clients has expired", &all, Silence::Lasting);
    bed.kill_manager(0).await?;
    for (member, machine) in members.iter().zip(&machines) {
        replace_certificate(machine, "server", &identity(authority, member, EXPIRED)?).await?;
    }
    bed.start_manager(0).await?;
    nobody_is_blamed(handle, "no other one answers").await?;
    tokio::time::sleep(ILLNESS).await;
    let status = handle.status().await?;
    let blamed = status.members.iter().find(|member| member.unhealthy_since.is_some());
    ensure!(blamed.is_none() && handle.etcd_machines().await? == before, "{blamed:?}: {:?}", status.conditions);
    for (member, machine) in members.iter().zip(&machines) {
        replace_certificate(machine, "server", &identity(authority, member, LEFT)?).await?;
    }
    bed.fault_is_over("all members show good certificates again", &all);
    ill::all_are_well(handle).await?;
    ensure!(handle.etcd_machines().await? == before, "the Machines are {:?}", handle.etcd_machines().await?);
    Ok(())
}

/// Waits until condition MembersHealthy is Unknown for this reason.
async fn nobody_is_blamed(handle: &ClusterHandle, why: &str) -> Result<()> {
    until(format!("it is not known how members are: {why}"), PATIENCE, async || {
        let conditions = handle.status().await?.conditions;
        let healthy = conditions.iter().find(|condition| condition.type_ == "MembersHealthy");
        let healthy = healthy.context("no condition MembersHealthy")?;
        ensure!(healthy.status == "Unknown" && healthy.message.contains(why), "{healthy:?}");
        Ok(Some(()))
    })
    .await
}

/// The cluster's own CA.
pub(crate) async fn authority(handle: &ClusterHandle) -> Result<Authority> {
    let ca = api::names::ca_secret(&handle.cluster);
    Authority::from_pem(&handle.secret(&ca, "tls.crt").await?, &handle.secret(&ca, "tls.key").await?)
}

/// A certificate of a member, and its key, that expires in this many days.
pub(crate) fn identity(authority: &Authority, member: &MemberStatus, days: i64) -> Result<Identity> {
    let host = member.client_url.trim_start_matches("https://").trim_end_matches(":2379");
    let names = [member.name.as_str(), host, "127.0.0.1", "localhost"].map(str::to_owned).to_vec();
    let expires = in_days(days).to_zoned(TimeZone::UTC).date();
    let day = (expires.year().into(), u8::try_from(expires.month())?, u8::try_from(expires.day())?);
    authority.member_until(&member.name, names, day)
}

/// `Some` if the certificates of all three members expire between `after` and `before` days from now.
async fn expire_in(handle: &ClusterHandle, after: i64, before: i64) -> Result<Option<()>> {
    let members = handle.status().await?.members;
    let expire: Vec<Option<Time>> = members.into_iter().map(|member| member.certificate_expires).collect();
    let is_so = |expires: &Option<Time>| {
        expires.as_ref().is_some_and(|Time(expires)| (in_days(after)..=in_days(before)).contains(expires))
    };
    Ok((expire.len() == 3 && expire.iter().all(is_so)).then_some(()))
}

fn in_days(days: i64) -> Timestamp {
    now().saturating_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX)
}
