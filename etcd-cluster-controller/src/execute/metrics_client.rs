//! The Secret with a client certificate for Prometheus. Nothing waits for it, so a failure is only reported, and it is
//! tried again much later.

use super::Outcome;
use super::secrets::{internal, put};
use crate::build;
use crate::context::Context;
use crate::observation::{ClusterLink, Observation};
use crate::observe::ca_of;
use crate::pki::{Client, new_client};
use crate::plan::metrics_client_is_due;
use crate::put_off::PUT_OFF;
use api::names;
use controller_support::Result;
use kube::{Resource, ResourceExt};
use time::OffsetDateTime;

/// What is put off after a refusal.
const WHAT: &str = "metrics-client";

/// Makes the certificate, or renews it before it expires.
pub(crate) async fn keep_metrics_client(context: &Context, observation: &Observation) {
    let ClusterLink::One(cluster) = &observation.cluster else { return };
    let etcd = observation.etcd.as_ref();
    let uid = etcd.uid().unwrap_or_default();
    if !metrics_client_is_due(observation) || context.put_off.has(&uid, WHAT) {
        return;
    }
    let name = names::metrics_client_secret(&cluster.name);
    let why = match make(context, observation, &cluster.name).await {
        Ok(Outcome::Done | Outcome::Outdated | Outcome::Changed) => return,
        Ok(Outcome::Waiting(hold) | Outcome::Blocked(hold)) => hold.message,
        Err(error) => match error.refusal() {
            Some(refusal) => refusal,
            None => {
                tracing::warn!(%error, secret = name, "the client certificate for Prometheus was not made");
                return;
            }
        },
    };
    context.put_off.put(&uid, WHAT);
    tracing::warn!(why, secret = name, "the client certificate for Prometheus was not made");
    let note = format!(
        "the client certificate for Prometheus was not put into Secret {name}: {why}. It is tried again after {} min",
        PUT_OFF.as_secs() / 60
    );
    context.events.warning(&etcd.object_ref(&()), "Create", "MetricsClientNotMade", note).await;
}

async fn make(context: &Context, observation: &Observation, cluster: &str) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let Some(ca) = ca_of(context, etcd, cluster) else { return Ok(Outcome::Outdated) };
    let now = OffsetDateTime::from_unix_timestamp(observation.now.as_second()).map_err(internal)?;
    let client = new_client(&ca, Client::Metrics, now).map_err(internal)?;
    let wanted = build::metrics_client_secret(etcd, cluster, &ca.cert, (client.cert.as_str(), client.key.as_str()));
    // If there is a Secret that is not cached, another manager has just made it.
    let refresh = context.secrets.get(&etcd.namespace().unwrap_or_default(), &wanted.name_any()).is_some();
    put(context, etcd, wanted, refresh).await
}
