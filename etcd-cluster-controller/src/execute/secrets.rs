//! Writing the Secrets of an etcd cluster.

use super::Outcome;
use crate::build::InitContent;
use crate::context::Context;
use crate::observation::{Certificates, Observation};
use crate::observe::other_owner;
use crate::pki::{CertAndKey, Client, new_ca, new_client, read_ca};
use crate::plan::Hold;
use crate::{CONTROLLER, build};
use api::conditions::reasons;
use api::{EtcdCluster, names};
use controller_support::{Cached, Error, Result, ResultExt, apply};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use time::OffsetDateTime;

/// Makes what is missing of the CA and of the certificates derived from it. The event about a new CA comes last:
/// meanwhile the watch catches up, and the next reconcile finds nothing missing.
pub(super) async fn ensure(context: &Context, observation: &Observation, cluster: &str) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let now = OffsetDateTime::from_unix_timestamp(observation.now.as_second()).map_err(internal)?;
    let (ca, is_new) = match ensure_ca(context, etcd, cluster, now).await? {
        ControlFlow::Continue(ca) => ca,
        ControlFlow::Break(outcome) => return Ok(outcome),
    };
    let outcome = derive(context, observation, cluster, (&ca, now)).await;
    if is_new {
        let note = format!("made the CA of etcd in Secret {}", names::ca_secret(cluster));
        context.events.normal(&etcd.object_ref(&()), "Create", "CertificateAuthorityCreated", note).await;
    }
    outcome
}

/// Makes what is missing of what is derived from the CA.
async fn derive(
    context: &Context,
    observation: &Observation,
    cluster: &str,
    (ca, now): (&CertAndKey, OffsetDateTime),
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let (has_ca, has_client) = match observation.certificates {
        Certificates::Ca { control_plane_ca, staged_client, .. } => (control_plane_ca, staged_client),
        _ => (false, false),
    };
    if !has_ca {
        let wanted = build::control_plane_ca_secret(etcd, cluster, &ca.cert);
        let outcome = put(context, etcd, wanted, true).await?;
        if outcome != Outcome::Done {
            return Ok(outcome);
        }
    }
    if !has_client {
        let client = new_client(ca, Client::ApiServer, now).map_err(internal)?;
        let wanted = build::client_secret(etcd, cluster, &client.cert, &client.key);
        // If the Secret is cached, it cannot be used, because otherwise nothing would be missing. If there is one that
        // is not cached, another manager has just made it.
        let observation = context.secrets.get(&etcd.namespace().unwrap_or_default(), &wanted.name_any()).is_some();
        return put(context, etcd, wanted, observation).await;
    }
    Ok(Outcome::Done)
}

/// The existing CA or a new one, and whether it is new. If two managers make one at the same time, `create` decides
/// between them.
async fn ensure_ca(
    context: &Context,
    etcd: &EtcdCluster,
    cluster: &str,
    now: OffsetDateTime,
) -> Result<ControlFlow<Outcome, (CertAndKey, bool)>> {
    let namespace = etcd.namespace().unwrap_or_default();
    let name = names::ca_secret(cluster);
    let there = |ca: ControlFlow<Outcome, CertAndKey>| ca.map_continue(|ca| (ca, false));
    if let Some(secret) = context.secrets.get(&namespace, &name) {
        return Ok(there(usable(&name, read_ca(&secret))));
    }
    let ca = new_ca(cluster, now).map_err(internal)?;
    let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), &namespace);
    match apply::create(&api, CONTROLLER, &build::ca_secret(etcd, cluster, &ca.cert, &ca.key)).await {
        Ok(_) => Ok(ControlFlow::Continue((ca, true))),
        Err(error) if error.is_conflict() => take_over_ca(context, etcd, cluster, &namespace, &name).await.map(there),
        Err(error) => Err(error),
    }
}

/// Takes over a CA Secret that our watch does not show: another manager has just made it, or it is a user's own. A
/// user's Secret stays the user's, and gets the labels that bring it into the watch.
async fn take_over_ca(
    context: &Context,
    etcd: &EtcdCluster,
    cluster: &str,
    namespace: &str,
    name: &str,
) -> Result<ControlFlow<Outcome, CertAndKey>> {
    let api = apply::dynamic(&context.shared.client, context.secrets.resource(), namespace);
    let secret: DynamicObject = api.get(name).await.doing(|| format!("reading Secret {name}"))?;
    if secret.labels().contains_key(names::ETCD_CLUSTER_LABEL) {
        return Ok(ControlFlow::Break(Outcome::Outdated));
    }
    if let Some(other) = other_user(&secret, cluster, &etcd.uid().unwrap_or_default()) {
        let message = format!(
            "Secret {name} belongs to {other}, and a CA serves one etcd cluster: rename one of the Clusters, or correct the label or owner of the Secret"
        );
        return Ok(ControlFlow::Break(Outcome::Blocked(Hold::new(reasons::NAME_TAKEN, message))));
    }
    let ca = usable(name, read_ca(&secret));
    if ca.is_continue() {
        let labels = json!({"metadata": {"labels": build::labels(etcd, cluster)}});
        let _: DynamicObject = apply::merge(&api, CONTROLLER, name, &labels).await?;
    }
    Ok(ca)
}

/// The other owner of a Secret with the name of our CA. The kubeadm control plane of a Cluster `X-managed` gives this
/// name to the CA of its own etcd. The Secret of an earlier EtcdCluster does not count: it goes with that EtcdCluster,
/// and the plan waits for this.
fn other_user(secret: &DynamicObject, cluster: &str, uid: &str) -> Option<String> {
    if let Some(other) = other_owner(secret, uid).filter(|owner| owner.kind != "EtcdCluster") {
        return Some(format!("{} {}", other.kind, other.name));
    }
    let named = secret.labels().get(names::CLUSTER_NAME_LABEL).filter(|name| *name != cluster);
    named.map(|name| format!("Cluster {name}"))
}

fn usable(secret: &str, ca: std::result::Result<CertAndKey, String>) -> ControlFlow<Outcome, CertAndKey> {
    match ca {
        Ok(ca) => ControlFlow::Continue(ca),
        Err(message) => ControlFlow::Break(invalid(secret, &message)),
    }
}

/// Publishes where joining members find the voters. Only the observed version of the Secret is changed, so that no
/// admission is lost that was made in between.
pub(super) async fn publish_init(
    context: &Context,
    observation: &Observation,
    cluster: &str,
    content: &InitContent<'_>,
) -> Result<Outcome> {
    let mut secret = build::init_secret(&observation.etcd, cluster, content);
    if observation.init_version.is_none() {
        return put(context, &observation.etcd, secret, false).await;
    }
    // The observed Secret is this EtcdCluster's. If it is gone, the write must not create it again. The version alone
    // would not prevent that, so the UID is set too.
    secret.metadata.resource_version = observation.init_version.clone();
    secret.metadata.uid = observation.init_uid.clone();
    replace(context, &observation.etcd, &secret).await
}

/// Creates a Secret. If there is one of that name, `refresh` says whether its content is brought up to date. A Secret
/// that is not this EtcdCluster's is left alone.
pub(super) async fn put(context: &Context, etcd: &EtcdCluster, wanted: Secret, refresh: bool) -> Result<Outcome> {
    let namespace = etcd.namespace().unwrap_or_default();
    let (name, uid) = (wanted.name_any(), etcd.uid().unwrap_or_default());
    let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), &namespace);
    if context.secrets.get(&namespace, &name).is_none() {
        match apply::create(&api, CONTROLLER, &wanted).await {
            Ok(_) => return Ok(Outcome::Done),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    let there = api.get_metadata(&name).await.doing(|| format!("reading Secret {name}"))?;
    let owners = there.metadata.owner_references.clone().unwrap_or_default();
    if !owners.iter().any(|owner| owner.uid == uid) {
        return Ok(Outcome::Blocked(of_another(&context.etcds, &namespace, &name, &owners)));
    }
    if !refresh {
        if let Some(labels) = missing_labels(&wanted, &there) {
            // Without the labels, no watch of ours shows the Secret, and every reconcile would look for it here.
            return Outcome::of(apply::merge(&api, CONTROLLER, &name, &labels).await);
        }
        // The Secret is as it should be, and no watch shows it yet.
        return Ok(Outcome::Outdated);
    }
    replace(context, etcd, &wanted).await
}

/// Brings the content of a Secret up to date.
async fn replace(context: &Context, etcd: &EtcdCluster, wanted: &Secret) -> Result<Outcome> {
    let api: Api<Secret> = Api::namespaced(context.shared.client.clone(), &etcd.namespace().unwrap_or_default());
    let there: Secret = match apply::apply(&api, CONTROLLER, wanted).await {
        Ok(there) => there,
        Err(error) if error.is_conflict() => return Ok(Outcome::Outdated),
        Err(error) => return Err(error),
    };
    if !has_foreign_key(&there, wanted) {
        return Ok(Outcome::Done);
    }
    // The key belongs to another field manager, so our apply leaves it in place.
    let without = json!({"metadata": {"uid": there.uid()}, "data": {build::KEY: null}});
    Outcome::of(apply::merge::<Secret>(&api, CONTROLLER, &there.name_any(), &without).await)
}

/// Whether a private key has been added where none belongs: the control plane would try to use it.
fn has_foreign_key(there: &Secret, wanted: &Secret) -> bool {
    let has = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data.contains_key(build::KEY));
    has(there) && !has(wanted)
}

/// Why a Secret is left alone. The Secret of an EtcdCluster that is gone is on its way out, so it is waited for. An
/// existing EtcdCluster keeps its own Secret.
fn of_another(etcds: &Cached, namespace: &str, secret: &str, owners: &[OwnerReference]) -> Hold {
    let other = owners.iter().find(|owner| owner.kind == "EtcdCluster");
    let lives = |owner: &OwnerReference| {
        etcds.get(namespace, &owner.name).is_some_and(|etcd| etcd.uid().as_ref() == Some(&owner.uid))
    };
    if let Some(other) = other.filter(|other| !lives(other)) {
        let message = format!("Secret {secret} still belongs to EtcdCluster {}, and goes with that", other.name);
        return Hold::new(reasons::WAITING_FOR_CERTIFICATES, message);
    }
    let owner = other.map(|other| format!(" (it belongs to EtcdCluster {})", other.name)).unwrap_or_default();
    let message = format!("Secret {secret} exists and does not belong to this EtcdCluster{owner}; rename or delete it");
    Hold::new(reasons::NAME_TAKEN, message)
}

/// Puts the label back on a CA Secret that the members need: without it no watch shows it.
pub(super) async fn label_ca(context: &Context, etcd: &EtcdCluster, cluster: &str) -> Result<Outcome> {
    let (namespace, name) = (etcd.namespace().unwrap_or_default(), names::ca_secret(cluster));
    Ok(match take_over_ca(context, etcd, cluster, &namespace, &name).await? {
        ControlFlow::Continue(_) => Outcome::Done,
        ControlFlow::Break(outcome) => outcome,
    })
}

/// The patch that puts back the labels that were removed from a Secret of ours. `None`: none is missing.
fn missing_labels(wanted: &impl Resource, there: &impl Resource) -> Option<Value> {
    let missing: BTreeMap<_, _> =
        wanted.labels().iter().filter(|(label, value)| there.labels().get(*label) != Some(*value)).collect();
    // Another Secret may have got this name in between, and may not be ours.
    let metadata = json!({"labels": missing, "resourceVersion": there.resource_version()});
    (!missing.is_empty()).then(|| json!({"metadata": metadata}))
}

fn invalid(name: &str, message: &str) -> Outcome {
    Outcome::Blocked(Hold::new(reasons::SECRET_INVALID, format!("Secret {name}: {message}")))
}

pub(super) fn internal(error: impl std::fmt::Display) -> Error {
    Error::Internal(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, watched};
    use k8s_openapi::ByteString;

    #[test]
    fn a_ca_of_another_cluster_is_not_taken_over() {
        let user = |metadata: Value| {
            let secret: DynamicObject = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            other_user(&secret, "demo", "etcd-uid")
        };
        let owned = |api_version: &str, kind: &str| json!({"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "demo-managed", "uid": "1", "controller": true}]});
        let named = |cluster: &str| json!({"labels": {"cluster.x-k8s.io/cluster-name": cluster}});
        assert_eq!(user(json!({})), None, "a user's own");
        assert_eq!(user(named("demo")), None);
        assert_eq!(user(owned("cert-manager.io/v1", "Certificate")), None, "a user's own, made by a program of theirs");
        assert_eq!(user(named("demo-managed")).as_deref(), Some("Cluster demo-managed"));
        let control_plane = owned("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane");
        assert_eq!(user(control_plane).as_deref(), Some("KubeadmControlPlane demo-managed"));
        let config = owned("bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig");
        assert_eq!(user(config).as_deref(), Some("KubeadmConfig demo-managed"), "of a Machine without a control plane");
        assert_eq!(user(owned("etcdcluster.cluster.x-k8s.io/v1beta1", "EtcdCluster")), None, "it is waited for");
    }

    #[test]
    fn a_secret_of_another_is_waited_for_only_if_that_is_gone() {
        let mut story = Story::new(3);
        let etcds = watched(&[serde_json::to_value(story.etcd()).unwrap()]);
        let owner = |name: &str, uid: &str| OwnerReference {
            kind: "EtcdCluster".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let hold = |owners: &[OwnerReference]| of_another(&etcds, "default", "demo-etcd", owners);
        let living = hold(&[owner("demo-etcd", "etcd-uid")]);
        assert_eq!(living.reason, reasons::NAME_TAKEN, "{}", living.message);
        assert!(living.message.contains("it belongs to EtcdCluster demo-etcd"), "{}", living.message);
        for gone in [owner("demo-etcd", "earlier"), owner("gone", "etcd-uid")] {
            let waits = hold(&[gone]);
            assert_eq!(waits.reason, reasons::WAITING_FOR_CERTIFICATES, "{}", waits.message);
        }
        assert_eq!(hold(&[]).reason, reasons::NAME_TAKEN, "a user's own");
    }

    #[test]
    fn a_private_key_is_taken_out_of_the_control_planes_ca_and_of_nothing_else() {
        let mut story = Story::new(3);
        let wanted = build::control_plane_ca_secret(story.etcd(), "demo", "certificate");
        let mut there = wanted.clone();
        assert!(!has_foreign_key(&there, &wanted));
        there.data.as_mut().unwrap().insert("note".to_owned(), ByteString::default());
        assert!(!has_foreign_key(&there, &wanted));
        there.data.as_mut().unwrap().insert(build::KEY.to_owned(), ByteString::default());
        assert!(has_foreign_key(&there, &wanted));
        let with_key = build::ca_secret(story.etcd(), "demo", "certificate", "key");
        assert!(!has_foreign_key(&with_key, &with_key));
    }

    #[test]
    fn a_secret_of_ours_gets_its_label_back() {
        let mut story = Story::new(3);
        let wanted = build::init_secret(story.etcd(), "demo", &InitContent::default());
        let mut there = wanted.clone();
        there.metadata.resource_version = Some("7".to_owned());
        assert_eq!(missing_labels(&wanted, &there), None, "just made by another manager");
        let labels = there.metadata.labels.as_mut().unwrap();
        labels.remove(names::ETCD_CLUSTER_LABEL);
        labels.insert("theirs".to_owned(), "stays".to_owned());
        let expected =
            json!({"metadata": {"labels": {names::ETCD_CLUSTER_LABEL: "demo-etcd"}, "resourceVersion": "7"}});
        assert_eq!(missing_labels(&wanted, &there), Some(expected));
        there.metadata.labels = None;
        assert!(missing_labels(&wanted, &there).is_some());
    }
}
