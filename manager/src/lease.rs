//! The lease: only one of several managers works.
//!
//! Guarantee: a holder learns that it has lost the lease before another manager can take it, even if the API server
//! does not answer. Assumption: clocks run at about the same rate; which time they show does not matter. A process that
//! was suspended and continues learns of the loss a moment too late. So nothing that must not be done twice relies on
//! the lease alone.

mod election;

pub use election::Times;

use election::{Turn, renew, turn};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Name of the lease, and field manager.
const NAME: &str = "cluster-api-provider-etcdadm";
/// The longest time for one read or renewal. It is at most half of the time that a holder has to renew the lease.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// One manager among those that want the lease.
pub struct Candidate {
    leases: Api<Lease>,
    identity: String,
    times: Times,
    /// The version of the lease that was read last, and since when the lease has had this version.
    unchanged: Option<(String, Instant)>,
}

/// A lease that this process holds.
pub struct Held {
    candidate: Candidate,
    /// When the last successful renewal was sent.
    renewed: Instant,
}

impl Candidate {
    /// A candidate with a unique identity.
    #[must_use]
    pub fn new(client: Client, namespace: &str, times: Times) -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let identity = format!("{host}_{:08x}", rand::random::<u32>());
        Self { leases: Api::namespaced(client, namespace), identity, times, unchanged: None }
    }

    /// Waits until this process holds the lease.
    pub async fn acquire(mut self) -> Held {
        let mut said = None;
        loop {
            let begun = Instant::now();
            match self.attempt().await {
                Ok(None) => return Held { candidate: self, renewed: begun },
                Ok(Some(holder)) if said.as_ref() == Some(&holder) => {}
                Ok(Some(holder)) => {
                    tracing::info!(holder, "waiting for the lease");
                    said = Some(holder);
                }
                Err(error) => {
                    let namespace = self.leases.namespace().unwrap_or_default();
                    tracing::warn!(error = format!("{error:#}"), namespace, "no lease, trying again");
                }
            }
            tokio::time::sleep(self.times.retry_period).await;
        }
    }

    /// Takes or renews the lease, if it is free or ours. `Some`: the manager that holds it instead.
    async fn attempt(&mut self) -> anyhow::Result<Option<String>> {
        let limit = self.request_timeout();
        let attempt = tokio::time::timeout(limit, self.look_and_write()).await;
        attempt.unwrap_or_else(|_| anyhow::bail!("the API server does not answer within {limit:?}"))
    }

    fn request_timeout(&self) -> Duration {
        REQUEST_TIMEOUT.min(self.times.renew_deadline / 2)
    }

    async fn look_and_write(&mut self) -> anyhow::Result<Option<String>> {
        let lease = self.leases.get_opt(NAME).await?;
        let unchanged_for = lease.as_ref().map_or(Duration::ZERO, |lease| self.unchanged_for(lease));
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let changes = match turn(spec, &self.identity, unchanged_for, self.times.duration) {
            Turn::Wait { holder } => return Ok(Some(holder)),
            Turn::Renew => json!({"renewTime": now()}),
            Turn::Take { transitions } => json!({
                "holderIdentity": self.identity, "leaseDurationSeconds": self.times.duration.as_secs(),
                "acquireTime": now(), "renewTime": now(), "leaseTransitions": transitions,
            }),
        };
        match lease {
            Some(lease) => self.write(&lease, changes).await?,
            None => {
                let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(serde_json::from_value(changes)?) };
                self.leases.create(&PostParams::default(), &lease).await?;
            }
        }
        Ok(None)
    }

    /// Writes the lease. The API server refuses this if the lease has changed since it was read.
    async fn write(&self, lease: &Lease, spec: Value) -> kube::Result<()> {
        let patch = json!({"metadata": {"resourceVersion": lease.resource_version()}, "spec": spec});
        let parameters = PatchParams { field_manager: Some(NAME.to_owned()), ..PatchParams::default() };
        self.leases.patch(NAME, &parameters, &Patch::Merge(patch)).await.map(drop)
    }

    /// How long the lease is known to have had the version that was just read.
    fn unchanged_for(&mut self, lease: &Lease) -> Duration {
        let version = lease.resource_version().unwrap_or_default();
        match &self.unchanged {
            Some((known, since)) if *known == version => since.elapsed(),
            _ => {
                self.unchanged = Some((version, Instant::now()));
                Duration::ZERO
            }
        }
    }
}

impl Held {
    /// Renews the lease until it is lost, and returns the reason. The caller must then stop acting at once.
    pub async fn keep(&mut self) -> String {
        renew(self.candidate.times, self.renewed, async || self.candidate.attempt().await).await
    }

    /// Gives the lease back, so that the next manager does not have to wait until it expires.
    pub async fn release(self) {
        let candidate = self.candidate;
        let free =
            json!({"holderIdentity": null, "acquireTime": null, "renewTime": null, "leaseDurationSeconds": null});
        let released = async {
            let lease = candidate.leases.get(NAME).await?;
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
            if holder == Some(&candidate.identity) { candidate.write(&lease, free).await } else { Ok(()) }
        };
        match tokio::time::timeout(candidate.request_timeout(), released).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease could not be given back; it expires by itself"),
            Err(_) => tracing::warn!("the API server does not answer; the lease expires by itself"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "for people who look at the lease; nothing is decided by it")]
fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}
