//! Certificates of members expire, and etcd goes on: their Machines are replaced before.

use crate::bring_up::PATIENCE;
use crate::rolls::{FOLLOWERS, changed, judged, rolled};
use crate::shrinks::alone;
use anyhow::{Context, Result, ensure};
use e2e::bed::data::said;
use e2e::bed::{Bed, Look, Manifests};
use e2e::history::History;
use e2e::tls::Authority;
use e2e::until::until;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Days that the certificates are still good for: more than a rollout waits for by default.
const LEFT: i64 = 100;
/// Puts a key and a certificate in place of what etcd serves with. It reads them for every connection.
const REPLACE: &str = "cd /etc/etcd/pki && for part in key crt; do cp -p server.$part new.$part; done && \
    printf %s \"$1\" > new.key && printf %s \"$2\" > new.crt && mv new.key server.key && mv new.crt server.crt";

/// Three members serve with certificates that are not good for long. As soon as that is less than the spec asks for, their
/// Machines are replaced, one after the other; the new ones are good for a year, and stay.
pub(crate) async fn that_expire(bed: &mut Bed) -> Result<()> {
    let look = alone(bed, Manifests::new("certificates-expire", "demo")?).await?;
    let old = look.etcd_machines().await?;
    until("the status says that they are good for a year", PATIENCE, async || expire_in(&look, 364, 366).await).await?;
    let ca = api::names::ca_secret(&look.cluster);
    let authority = Authority::from_pem(&look.secret(&ca, "tls.crt").await?, &look.secret(&ca, "tls.key").await?)?;
    for member in look.status().await?.members {
        let host = member.client_url.trim_start_matches("https://").trim_end_matches(":2379");
        let names = [&member.name, host, "127.0.0.1", "localhost"].map(str::to_owned).to_vec();
        let expires = in_days(LEFT).to_zoned(TimeZone::UTC).date();
        let day = (expires.year().into(), u8::try_from(expires.month())?, u8::try_from(expires.day())?);
        let identity = authority.member_until(&member.name, names, day)?;
        let machine = bed.machines.get(&look.namespace, &member.machine)?;
        said(&machine, &["sh", "-c", REPLACE, "sh", &identity.key, &identity.certificate]).await?;
    }
    // Over a connection that is open, a member shows nothing anew.
    bed.kill_and_restart_manager(0).await?;
    until("the status says when they expire", PATIENCE, async || expire_in(&look, LEFT - 2, LEFT).await).await?;
    ensure!(look.etcd_machines().await? == old, "the Machines have been replaced too early");

    let writers = History::begin(bed.world(), &look.namespace, &look.staged_etcd_access().await?, FOLLOWERS).await?;
    changed(&look, &json!({"rolloutBefore": {"certificatesExpiryDays": LEFT + 20}})).await?;
    until("it is said why the Machines are replaced", PATIENCE, async || {
        let conditions = look.status().await?.conditions;
        let condition = conditions.iter().find(|condition| condition.type_ == "MachinesUpToDate");
        let message = &condition.context("no condition MachinesUpToDate")?.message;
        Ok(message.contains("certificates expire within 120 days").then_some(()))
    })
    .await?;
    let new = rolled(bed, &look, &old, &writers).await?;
    judged(bed, &look, writers, &[], old.len()).await?;
    until("the new ones are good for a year", PATIENCE, async || expire_in(&look, 364, 366).await).await?;
    ensure!(look.etcd_machines().await? == new, "the new Machines are replaced too");
    Ok(())
}

/// Whether the certificates of all three expire after, and before, so many days.
async fn expire_in(look: &Look, after: i64, before: i64) -> Result<Option<()>> {
    let members = look.status().await?.members;
    let expire: Vec<Option<Time>> = members.into_iter().map(|member| member.certificate_expires).collect();
    let is_so = |expires: &Option<Time>| {
        expires.as_ref().is_some_and(|Time(expires)| (in_days(after)..=in_days(before)).contains(expires))
    };
    Ok((expire.len() == 3 && expire.iter().all(is_so)).then_some(()))
}

#[expect(clippy::disallowed_methods, reason = "certificates expire by the clock")]
fn in_days(days: i64) -> Timestamp {
    Timestamp::now().saturating_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX)
}
