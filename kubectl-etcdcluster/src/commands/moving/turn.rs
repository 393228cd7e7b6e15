//! A Lease in the source, which allows only one `move` of a namespace at a time. The command renews it while it runs,
//! and deletes it at its end. A command that was killed leaves it behind. The next one takes it over if nobody renews
//! it for a while. The times in the Lease do not matter.

use super::place::Place;
use super::say;
use crate::reader::now;
use anyhow::{Context, Error, Result, anyhow, bail};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams, Preconditions};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Name of the Lease.
const NAME: &str = "kubectl-etcdcluster-move";
/// The pause between two renewals, and the time limit of one.
const RENEWAL: Duration = Duration::from_secs(5);
/// After this time without a renewal, the holder stops.
const LOST: Duration = Duration::from_secs(15);
/// After this time without a renewal, another command may take the Lease. It is longer than `LOST` plus the time limit
/// of a renewal.
const SILENCE: Duration = Duration::from_secs(30);

/// The Lease, which this process holds.
pub(super) struct Turn {
    leases: Api<Lease>,
    lease: Lease,
}

impl Turn {
    /// Takes the Lease. Fails if another command holds it.
    pub(super) async fn take(source: &Place) -> Result<Self> {
        let leases = source.leases();
        let lease = match leases.create(&PostParams::default(), &mine()).await {
            Err(error) if is_answer(&error, &[409]) => after_silence(&leases).await?,
            other => other.with_context(|| format!("make Lease {NAME}, which keeps a second `move` away"))?,
        };
        Ok(Self { leases, lease })
    }

    /// Renews the Lease. Returns only when the Lease is lost, with the reason.
    pub(super) async fn keep(&mut self) -> Error {
        let mut kept = Instant::now();
        loop {
            sleep(RENEWAL).await;
            let begun = Instant::now();
            match timeout(RENEWAL, self.renew()).await {
                Ok(Ok(())) => kept = begun,
                Ok(Err(error)) if is_answer(&error, &[404, 409]) => {
                    return anyhow!("somebody else has changed Lease {NAME}: another `move` may have begun");
                }
                _ if kept.elapsed() >= LOST => {
                    return anyhow!("Lease {NAME} of the source could not be renewed for {} s", LOST.as_secs());
                }
                _ => {}
            }
        }
    }

    async fn renew(&mut self) -> kube::Result<()> {
        if let Some(spec) = &mut self.lease.spec {
            spec.renew_time = Some(MicroTime(now()));
        }
        // Sends the resource version, so the API server refuses the write if somebody else has written.
        self.lease = self.leases.replace(NAME, &PostParams::default(), &self.lease).await?;
        Ok(())
    }

    /// Deletes the Lease. If that fails, the next command has to wait for a while.
    pub(super) async fn end(self) {
        let (resource_version, uid) = (self.lease.resource_version(), self.lease.uid());
        let parameters = DeleteParams::default().preconditions(Preconditions { resource_version, uid });
        let _ = self.leases.delete(NAME, &parameters).await;
    }
}

/// Takes over a Lease that its holder no longer renews.
async fn after_silence(leases: &Api<Lease>) -> Result<Lease> {
    let seen = leases.get(NAME).await.with_context(|| format!("read Lease {NAME}"))?;
    let holder = seen.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
    let seconds = SILENCE.as_secs();
    say(&format!("{holder} moves this namespace, or was interrupted. Looking for {seconds} s whether it goes on."))?;
    sleep(SILENCE).await;
    let mut lease = mine();
    lease.metadata.resource_version = seen.resource_version();
    match leases.replace(NAME, &PostParams::default(), &lease).await {
        Err(error) if is_answer(&error, &[404, 409]) => bail!("{holder} moves this namespace, or has just ended"),
        other => other.with_context(|| format!("take Lease {NAME} over")),
    }
}

fn mine() -> Lease {
    let (user, time) = (std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned()), MicroTime(now()));
    let spec = LeaseSpec {
        holder_identity: Some(format!("{user}, process {}", std::process::id())),
        lease_duration_seconds: i32::try_from(SILENCE.as_secs()).ok(),
        acquire_time: Some(time.clone()),
        renew_time: Some(time),
        ..LeaseSpec::default()
    };
    Lease { metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() }, spec: Some(spec) }
}

/// Whether the API server has answered with one of these codes.
fn is_answer(error: &kube::Error, codes: &[u16]) -> bool {
    matches!(error, kube::Error::Api(status) if codes.contains(&status.code))
}
