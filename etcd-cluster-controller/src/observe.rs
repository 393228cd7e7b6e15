//! All reads of a reconcile, and the clock. Objects come from shared watches; only the members are asked anew.

mod docker;

use crate::build;
use crate::controller::Context;
use crate::etcd_access::Access;
use crate::observation::{Certificates, Check, ClusterLink, Membership, Observation, Template, hex, trusted_cluster};
use crate::pki::{CertAndKey, check_ca, is_signed_by};
use api::{EtcdCluster, names};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::loose::{ClusterView, MachineView, secret_text};
use controller_support::{Cached, Error, KindError, Result};
use futures::future::join_all;
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads everything that the plan may need.
pub(crate) async fn observe(context: &Context, etcd: Arc<EtcdCluster>) -> Result<Observation> {
    for cached in [&context.clusters, &context.machines, &context.secrets] {
        if !cached.ready().await {
            return Err(Error::Internal(format!("the list of {} has not come yet", cached.resource().plural)));
        }
    }
    let namespace = etcd.namespace().unwrap_or_default();
    let uid = etcd.uid().unwrap_or_default();
    let cluster = cluster_link(&context.clusters, &etcd, &namespace);
    let machines: BTreeMap<String, MachineView> = context
        .machines
        .select(&namespace, |machine| is_controlled_by(machine, &uid))
        .iter()
        .map(|machine| (machine.name_any(), MachineView::read(machine)))
        .collect();
    let mut seen = Observation {
        now: now(),
        cluster,
        certificates: Certificates::Unknown,
        init_urls: None,
        init_version: None,
        admitted: None,
        bootstrapped: BTreeMap::new(),
        template: Template::Unknown("the infrastructure template has not been looked up".to_owned()),
        machines,
        docker_machines: BTreeMap::new(),
        checks: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
        membership: Membership::NotAsked,
        etcd,
    };
    if let ClusterLink::One(cluster) = &seen.cluster {
        let (certificates, ca) = certificates(&context.secrets, &namespace, &cluster.name, &uid);
        if let Some(secret) = init_secret(&context.secrets, &namespace, &cluster.name, &uid) {
            seen.init_urls = secret_text(&secret, "clientUrls").filter(|urls| !urls.is_empty());
            seen.init_version = secret.resource_version();
            seen.admitted = secret_text(&secret, names::ADMITTED).map(|text| admitted(&text));
        }
        seen.bootstrapped = bootstrapped(&context.secrets, &namespace, &seen);
        seen.certificates = certificates;
        // A deletion asks nothing of etcd: it must not wait for members that hang.
        let deleting = seen.etcd.metadata.deletion_timestamp.is_some();
        if let Some(ca) = ca.filter(|_| !deleting) {
            docker::read(context, &mut seen, &namespace).await;
            ask_members(context, &mut seen, &ca, &uid).await;
        }
    }
    if needs_template(&seen) {
        seen.template = template(context, &seen.etcd, &namespace).await;
    }
    Ok(seen)
}

#[expect(clippy::disallowed_methods, reason = "the one place where this controller reads the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Whether the controller owner of an object has this UID.
pub(crate) fn is_controlled_by(object: &impl Resource, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// The other EtcdCluster that an object was made for: an earlier one of the same name or for the same Cluster. If that
/// is gone, the garbage collector will take the object.
fn other_owner<'a>(object: &'a DynamicObject, uid: &str) -> Option<&'a str> {
    let owner = object.owner_references().iter().find(|owner| owner.kind == "EtcdCluster" && owner.uid != uid)?;
    Some(&owner.name)
}

fn cluster_link(clusters: &Cached, etcd: &EtcdCluster, namespace: &str) -> ClusterLink {
    let name = etcd.name_any();
    let mut naming: Vec<ClusterView> = clusters
        .select(namespace, |cluster| ClusterView::read(cluster).names_etcd_cluster(&name))
        .iter()
        .map(|cluster| ClusterView::read(cluster))
        .collect();
    naming.sort_by(|a, b| a.name.cmp(&b.name));
    let labelled = etcd.labels().get(names::CLUSTER_NAME_LABEL);
    if naming.len() > 1 {
        // The one that it already belongs to keeps it; the others are told by the hook.
        return match naming.iter().position(|cluster| Some(&cluster.name) == labelled) {
            Some(index) => ClusterLink::One(Box::new(naming.swap_remove(index))),
            None => ClusterLink::Several(naming.into_iter().map(|cluster| cluster.name).collect()),
        };
    }
    match (naming.pop(), labelled) {
        (Some(cluster), Some(label)) if cluster.name != *label => ClusterLink::UsesAnother(format!(
            "label {} says {label}, but it is Cluster {} that names this EtcdCluster; correct one of them",
            names::CLUSTER_NAME_LABEL,
            cluster.name
        )),
        (Some(cluster), _) => ClusterLink::One(Box::new(cluster)),
        (None, Some(label)) => unnamed(clusters, namespace, label, &name),
        (None, None) => ClusterLink::None(format!(
            "no Cluster in namespace {namespace} has the annotation {}: {name}",
            names::MANAGED_ETCD_ANNOTATION
        )),
    }
}

/// The label says which Cluster, and that does not name this EtcdCluster.
fn unnamed(clusters: &Cached, namespace: &str, label: &str, name: &str) -> ClusterLink {
    let Some(cluster) = clusters.get(namespace, label) else {
        return ClusterLink::None(format!("Cluster {label} does not exist"));
    };
    match ClusterView::read(&cluster).etcd {
        Some(Ok(other)) => ClusterLink::UsesAnother(format!(
            "Cluster {label} uses {} {}; set its annotation {} to {name} to have it use this one",
            other.kind,
            other.name,
            names::MANAGED_ETCD_ANNOTATION
        )),
        _ => ClusterLink::None(format!(
            "Cluster {label} does not name this EtcdCluster: give it the annotation {}: {name}",
            names::MANAGED_ETCD_ANNOTATION
        )),
    }
}

fn certificates(secrets: &Cached, namespace: &str, cluster: &str, uid: &str) -> (Certificates, Option<CertAndKey>) {
    let Some(secret) = secrets.get(namespace, &names::ca_secret(cluster)) else {
        return (Certificates::NoCa, None);
    };
    if let Some(other) = other_owner(&secret, uid) {
        return (Certificates::OfAnother(other.to_owned()), None);
    }
    let ca = match read_ca(&secret) {
        Ok(ca) => ca,
        Err(message) => return (Certificates::Invalid(message), None),
    };
    let ours = |name: &str| secrets.get(namespace, name).filter(|secret| other_owner(secret, uid).is_none());
    let control_plane_ca = ours(&names::control_plane_ca_secret(cluster)).is_some_and(|secret| {
        secret_text(&secret, build::CERT).as_deref() == Some(&ca.cert) && secret_text(&secret, build::KEY).is_none()
    });
    let staged = ours(&names::staged_apiserver_client_secret(cluster)).and_then(|secret| {
        let [cert, key] = [build::CERT, build::KEY].map(|key| secret_text(&secret, key));
        key.and(cert)
    });
    if staged.as_ref().is_some_and(|cert| !is_signed_by(cert, &ca.cert)) {
        return (Certificates::Replaced, None);
    }
    let staged_client = staged.is_some();
    (Certificates::Ca { control_plane_ca, staged_client }, Some(ca))
}

/// Reads and checks a CA Secret. `Err`: what is wrong, in words for its owner.
pub(crate) fn read_ca(secret: &DynamicObject) -> Result<CertAndKey, String> {
    let text = |key: &str| secret_text(secret, key).ok_or_else(|| format!("has no key {key}"));
    let ca = CertAndKey { cert: text(build::CERT)?, key: text(build::KEY)? };
    check_ca(&ca).map(|()| ca)
}

fn init_secret(secrets: &Cached, namespace: &str, cluster: &str, uid: &str) -> Option<Arc<DynamicObject>> {
    secrets.get(namespace, &names::init_secret(cluster)).filter(|secret| is_controlled_by(secret.as_ref(), uid))
}

fn admitted(text: &str) -> BTreeMap<String, Timestamp> {
    let one = |entry: &str| {
        let (uid, since) = entry.split_once('@')?;
        Some((uid.to_owned(), since.parse().ok()?))
    };
    text.split(',').filter_map(one).collect()
}

/// When each Machine got its bootstrap data. Those of an earlier Machine of the same name are older than the Machine.
fn bootstrapped(secrets: &Cached, namespace: &str, seen: &Observation) -> BTreeMap<String, Timestamp> {
    let of = |machine: &MachineView| {
        let made = secrets.get(namespace, &machine.name)?.creation_timestamp()?.0;
        machine.created.as_ref().is_none_or(|created| created.0 <= made).then(|| (machine.name.clone(), made))
    };
    seen.machines.values().filter_map(of).collect()
}

/// Checks every member, then asks one that answers for the member list.
async fn ask_members(context: &Context, seen: &mut Observation, ca: &CertAndKey, uid: &str) {
    let now =
        time::OffsetDateTime::from_unix_timestamp(seen.now.as_second()).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let access = match context.accesses.get(uid, ca, now) {
        Ok(access) => access,
        Err(message) => {
            // Ours to solve: no member is blamed for it.
            seen.membership = Membership::Unknown(format!("no client certificate can be made: {message}"));
            return;
        }
    };
    let asked = seen.machines.values().map(|machine| {
        let url = seen.client_url(machine);
        let last = seen.last_on(machine).map(|member| (member.id.clone(), member.client_url.clone()));
        let (access, name) = (access.clone(), machine.name.clone());
        async move { (name, ask(&access, url, last).await) }
    });
    let (answers, mut healthy) = (join_all(asked).await, Vec::new());
    for (name, Answer { url, check, elsewhere }) in answers {
        if let (Check::Healthy { report }, Some(url)) = (&check, &url) {
            healthy.push((report.cluster_id, url.clone()));
        }
        if let (true, Some(url)) = (elsewhere, url) {
            seen.elsewhere.insert(name.clone(), url);
        }
        seen.checks.insert(name, check);
    }
    let recorded = seen.etcd.status.as_ref().map_or("", |status| &status.cluster_id);
    let trusted = trusted_cluster(recorded, &healthy.iter().map(|(id, _)| *id).collect());
    if trusted.is_none() && !healthy.is_empty() {
        seen.membership = Membership::Unknown("members of several etcd clusters answer".to_owned());
    }
    for (_, url) in healthy.into_iter().filter(|(id, _)| Some(*id) == trusted) {
        match access.members(&url).await {
            Ok((cluster_id, members)) => {
                seen.membership = Membership::Known { cluster_id, members };
                return;
            }
            Err(message) => seen.membership = Membership::Unknown(message),
        }
    }
}

struct Answer {
    url: Option<String>,
    check: Check,
    /// The URL is not the one that the Machine's address says.
    elsewhere: bool,
}

/// Asks the member of a Machine for its health at `url`. If it is not that member which answers there, it is asked where it
/// served last (its ID and URL): what is said of a machine's addresses can be wrong, or be another machine's by now.
async fn ask(access: &Access, url: Option<String>, last: Option<(String, String)>) -> Answer {
    let check = check(access, url.clone()).await;
    if let Some((id, last)) = last.filter(|(_, last)| !last.is_empty() && Some(last) != url.as_ref())
        && !is_from(&check, &id)
    {
        let again = self::check(access, Some(last.clone())).await;
        if is_from(&again, &id) {
            return Answer { url: Some(last), check: again, elsewhere: true };
        }
    }
    Answer { url, check, elsewhere: false }
}

fn is_from(check: &Check, id: &str) -> bool {
    matches!(check, Check::Healthy { report } if hex(report.member_id) == id)
}

async fn check(access: &Access, url: Option<String>) -> Check {
    let Some(url) = url else { return Check::NoAddress };
    match access.check(&url).await {
        Ok(report) => Check::Healthy { report },
        Err(message) => Check::Failing(message),
    }
}

/// From a watch, so it costs nothing to look also when no Machine is missing: its owner may be.
fn needs_template(seen: &Observation) -> bool {
    let going = seen.etcd.metadata.deletion_timestamp.is_some();
    !going && matches!(&seen.cluster, ClusterLink::One(cluster) if !cluster.deleting)
}

async fn template(context: &Context, etcd: &EtcdCluster, namespace: &str) -> Template {
    let wanted = &etcd.spec.infrastructure_template;
    let (group, kind) = (wanted.group(), wanted.kind.as_str());
    let found = async {
        let template = context.shared.kinds.find(group, kind, CLUSTER_API_CONTRACTS).await?;
        let clones = kind.strip_suffix("Template").unwrap_or(kind);
        let clones = context.shared.kinds.find(group, clones, CLUSTER_API_CONTRACTS).await?;
        Ok::<_, KindError>((template, clones))
    };
    let (resource, clones) = match found.await {
        Ok(found) => found,
        Err(error) if error.is_users() => {
            return Template::NotFound(format!("spec.infrastructureTemplate: {error}"));
        }
        Err(error) => return Template::Unknown(error.to_string()),
    };
    let templates = context.watch_template(&resource);
    if !templates.ready().await {
        return Template::Unknown(format!("the list of {} has not come yet", resource.plural));
    }
    match templates.get(namespace, &wanted.name) {
        Some(template) => Template::Found { template, clones },
        None => Template::NotFound(format!(
            "spec.infrastructureTemplate: {kind} {} does not exist in namespace {namespace}",
            wanted.name
        )),
    }
}
