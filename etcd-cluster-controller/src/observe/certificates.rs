//! The CA and the Secrets made from it.

use crate::build;
use crate::context::Context;
use crate::observation::{Certificates, Observation, RENEW_BEFORE};
use crate::pki::{CertAndKey, ClientCertificate, JudgedCas, Validity, is_another_ca, read_ca};
use api::{EtcdCluster, names};
use controller_support::external::{api_group, secret_text};
use controller_support::{Cached, Result, ResultExt, apply};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::sync::Arc;

/// The certificates, and the CA if it can be used.
pub(super) async fn read(
    context: &Context,
    observation: &Observation,
    cluster: &str,
) -> Result<(Certificates, Option<CertAndKey>)> {
    let etcd = observation.etcd.as_ref();
    let (namespace, uid) = (etcd.namespace().unwrap_or_default(), etcd.uid().unwrap_or_default());
    let name = names::ca_secret(cluster);
    let Some(secret) = context.secrets.get(&namespace, &name) else {
        return missing(context, observation, &namespace, &name).await;
    };
    // If another provider's object has taken over the Secret of a CA that members run with, the members keep this CA:
    // without it, no member could be replaced.
    let in_use = etcd.has_begun() || !observation.machines.is_empty();
    if let Some(other) = other_owner(&secret, &uid).filter(|other| other.kind == "EtcdCluster" || !in_use) {
        return Ok((of_another(other), None));
    }
    let ours = |name: &str| {
        let secret: Option<Arc<DynamicObject>> = context.secrets.get(&namespace, name);
        secret.filter(|secret| !is_of_an_earlier(secret, &uid))
    };
    let staged = ours(&names::staged_apiserver_client_secret(cluster));
    let judged = context.judged_cas.judge(&secret, staged.as_deref());
    let ca = match &judged.ca {
        Ok(ca) => ca.clone(),
        Err(message) => return Ok((Certificates::Invalid(message.clone()), None)),
    };
    let for_control_plane = ours(&names::control_plane_ca_secret(cluster));
    let trusted = for_control_plane.as_ref().and_then(|secret| secret_text(secret, build::CERT));
    let has_key = for_control_plane.is_some_and(|secret| secret_text(&secret, build::KEY).is_some());
    let control_plane_ca = trusted.as_ref() == Some(&ca.cert) && !has_key;
    let client = match judged.client {
        ClientCertificate::OfAnotherCa => return Ok((Certificates::Replaced, None)),
        // The CA certificate for the control plane also shows that the CA was replaced. Neither this certificate nor a
        // client certificate may be made from another CA.
        ClientCertificate::None if trusted.is_some_and(|trusted| is_another_ca(&ca.cert, &trusted)) => {
            return Ok((Certificates::Replaced, None));
        }
        ClientCertificate::None => None,
        ClientCertificate::Good(validity) => validity,
    };
    let staged_client = client.is_some_and(|validity| lasts(validity, observation.now));
    let expires = client.map(|validity| validity.until);
    let ca_expires = judged.ca_expires;
    Ok((Certificates::Ca { control_plane_ca, staged_client, expires, ca_expires }, Some(ca)))
}

/// When the certificates in the Secrets of an EtcdCluster expire, each with its name in the metrics. A certificate that
/// cannot be used is left out.
pub(crate) fn expiries(
    secrets: &Cached,
    judged_cas: &JudgedCas,
    etcd: &EtcdCluster,
) -> impl Iterator<Item = (&'static str, Timestamp)> {
    let (namespace, uid) = (etcd.namespace().unwrap_or_default(), etcd.uid().unwrap_or_default());
    let ours = |name: &str| secrets.get(&namespace, name).filter(|secret| !is_of_an_earlier(secret, &uid));
    let cluster = etcd.labels().get(names::CLUSTER_NAME_LABEL);
    let ca = cluster.and_then(|cluster| ours(&names::ca_secret(cluster)));
    let staged = cluster.and_then(|cluster| ours(&names::staged_apiserver_client_secret(cluster)));
    let judged = ca.map(|ca| judged_cas.judge(&ca, staged.as_deref()));
    let client = judged.as_ref().and_then(|judged| judged.client.validity());
    let ca = judged.as_ref().and_then(|judged| judged.ca_expires);
    let metrics = cluster.and_then(|cluster| metrics_client(secrets, judged_cas, etcd, cluster));
    let [client, metrics] = [client, metrics].map(|validity| Some(validity?.until));
    let all = [("ca", ca), ("apiserver-client", client), ("metrics-client", metrics)];
    all.into_iter().filter_map(|(name, expires)| Some((name, expires?)))
}

/// When the client certificate for Prometheus is valid. `None`: the spec does not ask for one, the CA has not signed
/// it, or its Secret tells clients to trust another CA.
pub(super) fn metrics_client(
    secrets: &Cached,
    judged_cas: &JudgedCas,
    etcd: &EtcdCluster,
    cluster: &str,
) -> Option<Validity> {
    let (namespace, uid) = (etcd.namespace().unwrap_or_default(), etcd.uid().unwrap_or_default());
    let ours = |name: &str| secrets.get(&namespace, name).filter(|secret| !is_of_an_earlier(secret, &uid));
    let asked = etcd.spec.metrics_client_secret.then(|| ours(&names::metrics_client_secret(cluster)));
    let (client, ca) = (asked.flatten()?, ours(&names::ca_secret(cluster))?);
    let judged = judged_cas.judge(&ca, Some(client.as_ref()));
    let trusts = secret_text(&client, build::CA);
    let is_of_ca = judged.ca.as_ref().is_ok_and(|ca| trusts.as_ref() == Some(&ca.cert));
    judged.client.validity().filter(|_| is_of_ca)
}

/// Whether a certificate does not have to be renewed yet. A certificate that is not valid yet has to be: it was made by
/// a clock that has been set back since, and new machines would keep it.
fn lasts(validity: Validity, now: Timestamp) -> bool {
    validity.from <= now && validity.until.duration_since(now) > RENEW_BEFORE
}

/// The certificates if no watch shows the CA. A Secret that a person has restored often lacks the label, so it is read
/// live, but only while members need it.
async fn missing(
    context: &Context,
    observation: &Observation,
    namespace: &str,
    name: &str,
) -> Result<(Certificates, Option<CertAndKey>)> {
    if observation.machines.is_empty() && observation.recorded_cluster_id().is_none() {
        return Ok((Certificates::NoCa, None));
    }
    let api = apply::dynamic(&context.shared.client, context.secrets.resource(), namespace);
    let live: Option<DynamicObject> = api.get_opt(name).await.doing(|| format!("reading Secret {name}"))?;
    let Some(secret) = live else { return Ok((Certificates::NoCa, None)) };
    let uid = observation.etcd.uid().unwrap_or_default();
    Ok(match (other_owner(&secret, &uid), read_ca(&secret)) {
        (Some(other), _) => (of_another(other), None),
        (None, Err(message)) => (Certificates::Invalid(message), None),
        (None, Ok(_)) => (Certificates::NotLabelled, None),
    })
}

/// The CA in the Secret that the watch shows.
pub(crate) fn ca_of(context: &Context, etcd: &EtcdCluster, cluster: &str) -> Option<CertAndKey> {
    let secret = context.secrets.get(&etcd.namespace().unwrap_or_default(), &names::ca_secret(cluster))?;
    read_ca(&secret).ok()
}

/// Whether a Secret was made for an earlier EtcdCluster, of the same name or for the same Cluster. The garbage
/// collector deletes such a Secret.
fn is_of_an_earlier(secret: &DynamicObject, uid: &str) -> bool {
    secret.owner_references().iter().any(|owner| owner.kind == "EtcdCluster" && owner.uid != uid)
}

/// The owner of the Secret with our CA, if it is not this EtcdCluster: an earlier EtcdCluster, or an object of another
/// provider of Cluster API that makes CAs and takes the Secret with it when it is deleted. A Cluster does not count,
/// because it makes no CA. An owner outside Cluster API does not count either: that is a user's own way of making
/// Secrets. If there are several, an earlier EtcdCluster comes first, because then the Secret is gone soon.
pub(crate) fn other_owner<'a>(object: &'a DynamicObject, uid: &str) -> Option<&'a OwnerReference> {
    let of_a_provider =
        |owner: &OwnerReference| api_group(&owner.api_version).ends_with(&format!(".{}", names::CLUSTER_GROUP));
    let others = object.owner_references().iter().filter(|owner| owner.uid != uid && of_a_provider(owner));
    others.min_by_key(|owner| owner.kind != "EtcdCluster")
}

fn of_another(owner: &OwnerReference) -> Certificates {
    Certificates::OfAnother { kind: owner.kind.clone(), name: owner.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Client, new_ca, new_client, validity};
    use serde_json::json;
    use time::OffsetDateTime;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    #[test]
    fn a_secret_is_another_ones_by_any_owner_that_makes_cas_for_clusters() {
        let other = |api_version: &str, kind: &str, uid: &str| {
            let ours = json!({"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
                "name": "demo-etcd", "uid": "etcd-uid"});
            let owner =
                json!({"apiVersion": api_version, "kind": kind, "name": "other", "uid": uid, "controller": true});
            let secret: DynamicObject =
                serde_json::from_value(json!({"metadata": {"ownerReferences": [ours, owner]}})).unwrap();
            other_owner(&secret, "etcd-uid").map(|owner| format!("{} {}", owner.kind, owner.name))
        };
        let two = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "name": "x-managed", "uid": "x"},
            {"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster", "name": "demo-etcd", "uid": "earlier"},
        ]}});
        let first = other_owner(&serde_json::from_value(two).unwrap(), "etcd-uid").map(|owner| owner.uid.clone());
        assert_eq!(first.as_deref(), Some("earlier"), "that one takes it soon");
        let etcd = "etcdcluster.cluster.x-k8s.io/v1beta1";
        assert_eq!(other(etcd, "EtcdCluster", "etcd-uid"), None, "it is this one's");
        assert_eq!(other(etcd, "EtcdCluster", "earlier").as_deref(), Some("EtcdCluster other"));
        assert_eq!(other(etcd, "EtcdadmCluster", "x").as_deref(), Some("EtcdadmCluster other"));
        for version in ["v1beta1", "v1beta2"] {
            let control_plane = other(&format!("controlplane.cluster.x-k8s.io/{version}"), "KubeadmControlPlane", "x");
            assert_eq!(control_plane.as_deref(), Some("KubeadmControlPlane other"));
            let config = other(&format!("bootstrap.cluster.x-k8s.io/{version}"), "KubeadmConfig", "x");
            assert_eq!(config.as_deref(), Some("KubeadmConfig other"));
        }
        for (api_version, kind) in [
            ("cert-manager.io/v1", "Certificate"),
            ("external-secrets.io/v1", "ExternalSecret"),
            ("bitnami.com/v1alpha1", "SealedSecret"),
            ("notcluster.x-k8s.io/v1", "Something"),
            ("cluster.x-k8s.io/v1beta2", "Cluster"),
            ("v1", "ConfigMap"),
        ] {
            assert_eq!(other(api_version, kind, "x"), None, "a user's own, made by a {kind}");
        }
    }

    /// A control-plane machine gets a copy when it is made, and is replaced within a year.
    #[test]
    fn every_copy_of_the_api_servers_certificate_is_good_for_a_year() {
        let at = |day: i64| Timestamp::from_second(day * 86_400).unwrap();
        let ca = new_ca("demo", NOW).unwrap();
        let made = |day: i64| new_client(&ca, Client::ApiServer, NOW + time::Duration::days(day)).unwrap();
        let mut present = validity(&made(0).cert).unwrap();
        for day in 0..3 * 365 {
            if !lasts(present, at(day)) {
                present = validity(&made(day).cert).unwrap();
            }
            assert!(present.until > at(day + 365), "a machine of day {day} has one that expires at {}", present.until);
        }
        assert!(present.until < at(5 * 365), "and none is good for long");
    }

    #[test]
    fn one_that_was_made_by_a_clock_that_was_ahead_is_made_again() {
        let ca = new_ca("demo", NOW).unwrap();
        let made = |day: i64| new_client(&ca, Client::ApiServer, NOW + time::Duration::days(day)).unwrap();
        let now = Timestamp::UNIX_EPOCH;
        assert!(lasts(validity(&made(0).cert).unwrap(), now));
        assert!(lasts(validity(&made(1).cert).unwrap(), now), "it is good from a day before");
        assert!(!lasts(validity(&made(400).cert).unwrap(), now));
    }
}
