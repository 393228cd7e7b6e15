//! One `move` of a namespace at a time: a Lease in the source. It is renewed as long as the command runs, and deleted at
//! its end. One that was killed leaves it behind, and the next one takes it when nobody has renewed it for a while. What
//! clocks show does not matter.

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
/// Between two renewals, and how long one may take.
const RENEWAL: Duration = Duration::from_secs(5);
/// After so long without a renewal, whoever has the turn stops.
const LOST: Duration = Duration::from_secs(15);
/// After so long without one, another may have it: later than that, with the renewal that was waited for.
const SILENCE: Duration = Duration::from_secs(30);

/// The turn, which this process has.
pub(super) struct Turn {
    leases: Api<Lease>,
    lease: Lease,
}

impl Turn {
    /// Takes it. Fails if another has it.
    pub(super) async fn take(source: &Place) -> Result<Self> {
        let leases = source.leases();
        let lease = match leases.create(&PostParams::default(), &mine()).await {
            Err(error) if is_answer(&error, &[409]) => after_silence(&leases).await?,
            other => other.with_context(|| format!("make Lease {NAME}, which keeps a second `move` away"))?,
        };
        Ok(Self { leases, lease })
    }

    /// Keeps it, and comes back when it is lost, with the reason.
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
        // With its version: it is refused where another has written.
        self.lease = self.leases.replace(NAME, &PostParams::default(), &self.lease).await?;
        Ok(())
    }

    /// Gives it back. If that fails, the next one waits for a while.
    pub(super) async fn end(self) {
        let (resource_version, uid) = (self.lease.resource_version(), self.lease.uid());
        let parameters = DeleteParams::default().preconditions(Preconditions { resource_version, uid });
        let _ = self.leases.delete(NAME, &parameters).await;
    }
}

/// Takes the turn of one that does not renew it any more.
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
