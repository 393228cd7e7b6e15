//! The CA and the Secrets made from it.

use crate::build;
use crate::context::Context;
use crate::observation::{Certificates, Observation};
use crate::pki::{CertAndKey, check_ca, expiry, is_signed_by};
use api::{EtcdCluster, names};
use controller_support::external::secret_text;
use controller_support::{Result, ResultExt, apply};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::sync::Arc;

/// A staged certificate that expires sooner is made again.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 60);

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
    if let Some(other) = other_owner(&secret, &uid) {
        return Ok((Certificates::OfAnother(other.to_owned()), None));
    }
    let ca = match read_ca(&secret) {
        Ok(ca) => ca,
        Err(message) => return Ok((Certificates::Invalid(message), None)),
    };
    let ours = |name: &str| {
        let secret: Option<Arc<DynamicObject>> = context.secrets.get(&namespace, name);
        secret.filter(|secret| other_owner(secret, &uid).is_none())
    };
    let control_plane_ca = ours(&names::control_plane_ca_secret(cluster)).is_some_and(|secret| {
        secret_text(&secret, build::CERT).as_deref() == Some(&ca.cert) && secret_text(&secret, build::KEY).is_none()
    });
    let staged = ours(&names::staged_apiserver_client_secret(cluster)).and_then(|secret| {
        let [cert, key] = [build::CERT, build::KEY].map(|key| secret_text(&secret, key));
        key.and(cert)
    });
    if staged.as_ref().is_some_and(|cert| !is_signed_by(cert, &ca.cert)) {
        return Ok((Certificates::Replaced, None));
    }
    let expires = staged.as_deref().and_then(expiry);
    let staged_client = expires.is_some_and(|expires| lasts(expires, observation.now));
    Ok((Certificates::Ca { control_plane_ca, staged_client, expires }, Some(ca)))
}

fn lasts(expires: Timestamp, now: Timestamp) -> bool {
    expires.duration_since(now) > RENEW_BEFORE
}

/// No watch shows the CA. A Secret that was restored by hand often lacks the label: looked for only while members need it.
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
        (Some(other), _) => (Certificates::OfAnother(other.to_owned()), None),
        (None, Err(message)) => (Certificates::Invalid(message), None),
        (None, Ok(_)) => (Certificates::NotLabelled, None),
    })
}

/// The CA as the watch shows it.
pub(crate) fn ca_of(context: &Context, etcd: &EtcdCluster, cluster: &str) -> Option<CertAndKey> {
    let secret = context.secrets.get(&etcd.namespace().unwrap_or_default(), &names::ca_secret(cluster))?;
    read_ca(&secret).ok()
}

/// Reads and checks a CA Secret. `Err`: what is wrong, in words for its owner.
pub(crate) fn read_ca(secret: &DynamicObject) -> Result<CertAndKey, String> {
    let text = |key: &str| secret_text(secret, key).ok_or_else(|| format!("has no key {key}"));
    let ca = CertAndKey { cert: text(build::CERT)?, key: text(build::KEY)? };
    check_ca(&ca).map(|()| ca)
}

/// The other EtcdCluster that an object was made for: an earlier one of the same name or for the same Cluster. If that
/// is gone, the garbage collector will take the object.
fn other_owner<'a>(object: &'a DynamicObject, uid: &str) -> Option<&'a str> {
    let owner = object.owner_references().iter().find(|owner| owner.kind == "EtcdCluster" && owner.uid != uid)?;
    Some(&owner.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_well_before_it_expires() {
        let at = |days: i64| Timestamp::from_second(days * 86_400).unwrap();
        assert!(lasts(at(365), at(0)));
        assert!(!lasts(at(365), at(306)));
        assert!(!lasts(at(365), at(366)));
    }
}
