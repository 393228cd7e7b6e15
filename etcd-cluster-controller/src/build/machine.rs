//! The three objects of a member: infrastructure, config and Machine. All three have the same name.

use super::{cloned_from, deletion_timeouts, labels, owner, version, wanted_timeouts};
use api::etcd_cluster::LastRemediation;
use api::etcdadm_config::EtcdadmConfig;
use api::{EtcdCluster, names};
use kube::ResourceExt;
use kube::api::{DynamicObject, ObjectMeta};
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the three objects of a member are made from.
#[derive(Clone, Copy, Debug)]
pub struct MachineParts<'a> {
    /// The EtcdCluster.
    pub etcd: &'a EtcdCluster,
    /// Name of the Cluster.
    pub cluster: &'a str,
    /// Name of all three.
    pub name: &'a str,
    /// Kind of the infrastructure.
    pub infrastructure: &'a ApiResource,
    /// Failure domain of the Machine.
    pub failure_domain: Option<&'a str>,
    /// The replacement that the Machine is made for.
    pub replaces: Option<&'a LastRemediation>,
}

/// The infrastructure, cloned from its template. `Err`: what is wrong with the template.
///
/// # Errors
/// If the template has no `spec.template.spec`.
pub fn infrastructure(parts: &MachineParts<'_>, template: &DynamicObject) -> Result<DynamicObject, String> {
    let inner = template.data.pointer("/spec/template").unwrap_or(&Value::Null);
    let Some(spec) = inner.get("spec").filter(|spec| spec.is_object()) else {
        return Err(format!(
            "{} {}/{} has no spec.template.spec to make a {} from",
            parts.etcd.spec.infrastructure_template.kind,
            parts.etcd.namespace().unwrap_or_default(),
            template.name_any(),
            parts.infrastructure.kind
        ));
    };
    let mut metadata = metadata(parts, false);
    extend(metadata.labels.get_or_insert_default(), inner.pointer("/metadata/labels"));
    let annotations = metadata.annotations.get_or_insert_default();
    extend(annotations, inner.pointer("/metadata/annotations"));
    annotations.extend(cloned_from(parts.etcd));
    // Our labels win: watches find the member's objects by them.
    metadata.labels.get_or_insert_default().extend(labels(parts.etcd, parts.cluster));
    let clone = DynamicObject::new(parts.name, parts.infrastructure).data(json!({"spec": spec}));
    Ok(DynamicObject { metadata, ..clone })
}

/// The config that the bootstrap provider turns into bootstrap data.
#[must_use]
pub fn config(parts: &MachineParts<'_>) -> EtcdadmConfig {
    let mut metadata = metadata(parts, false);
    if let Some(limit) = parts.etcd.annotations().get(names::MAX_LEARNERS_ANNOTATION) {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(names::MAX_LEARNERS_ANNOTATION.to_owned(), limit.clone());
    }
    let mut spec = parts.etcd.spec.etcdadm_config_spec.clone();
    // The version is always written down. Otherwise it would be the default of whichever release reads the config.
    if spec.etcd_version() != Some(version(parts.etcd)) {
        spec.version = Some(version(parts.etcd).to_owned());
        if let Some(cloud_init) = &mut spec.cloud_init_config {
            cloud_init.version = None;
        }
    }
    EtcdadmConfig { metadata, spec, status: None }
}

/// The Machine. `kind` has the API version in which the Machine is written.
#[must_use]
pub fn machine(parts: &MachineParts<'_>, kind: &ApiResource) -> DynamicObject {
    let mut metadata = metadata(parts, true);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.extend(cloned_from(parts.etcd));
    // A deletion of the Machine waits until its member has left etcd.
    let hook = (names::PRE_TERMINATE_HOOK_ANNOTATION.to_owned(), names::PRE_TERMINATE_HOOK_OWNER.to_owned());
    annotations.extend([hook]);
    // With this annotation, the limits for replacements in a row still hold after the status is lost.
    if let Some(replaces) = parts.replaces.and_then(|replaces| serde_json::to_string(replaces).ok()) {
        annotations.insert(names::REMEDIATION_FOR_ANNOTATION.to_owned(), replaces);
    }
    // Cluster API's own finalizer, which its MachineSets also set. Without it, the Machine's first reconcile would only
    // add the finalizer, and the next one would come a second later.
    metadata.finalizers = Some(vec![names::MACHINE_FINALIZER.to_owned()]);
    let bootstrap = ApiResource::erase::<EtcdadmConfig>(&());
    let mut data = json!({
        "spec": {
            "clusterName": parts.cluster,
            // Some infrastructure refuses a Machine without a version. The Machine gets the version of etcd.
            "version": format!("v{}", version(parts.etcd).trim_start_matches('v')),
            "bootstrap": {"configRef": reference(kind, &bootstrap, parts)},
            "infrastructureRef": reference(kind, parts.infrastructure, parts),
        }
    });
    if let Some(domain) = parts.failure_domain {
        data["spec"]["failureDomain"] = json!(domain);
    }
    if let Some(wanted) = wanted_timeouts(parts.etcd) {
        deletion_timeouts::add(wanted, &mut data["spec"], &kind.version);
    }
    DynamicObject { metadata, ..DynamicObject::new(parts.name, kind).data(data) }
}

/// A reference in the form that this version of Machine has.
fn reference(machine: &ApiResource, to: &ApiResource, parts: &MachineParts<'_>) -> Value {
    if machine.version == "v1beta1" {
        return json!({
            "apiVersion": to.api_version, "kind": to.kind, "name": parts.name, "namespace": parts.etcd.namespace()
        });
    }
    json!({"apiGroup": to.group, "kind": to.kind, "name": parts.name})
}

fn metadata(parts: &MachineParts<'_>, controller: bool) -> ObjectMeta {
    let wanted = parts.etcd.spec.machine_template.clone().unwrap_or_default().metadata;
    // The label makes managers with the same watch filter reconcile the objects. What the user has set for Machines
    // wins.
    let filter = parts.etcd.labels().get_key_value(names::WATCH_FILTER_LABEL);
    let mut all_labels: BTreeMap<_, _> = filter.map(|(key, value)| (key.clone(), value.clone())).into_iter().collect();
    all_labels.extend(wanted.labels);
    all_labels.extend(labels(parts.etcd, parts.cluster));
    ObjectMeta {
        name: Some(parts.name.to_owned()),
        namespace: parts.etcd.namespace(),
        labels: Some(all_labels),
        annotations: Some(wanted.annotations),
        owner_references: Some(vec![owner(parts.etcd, controller)]),
        ..ObjectMeta::default()
    }
}

fn extend(map: &mut BTreeMap<String, String>, from: Option<&Value>) {
    let pairs = from.and_then(Value::as_object).into_iter().flatten();
    map.extend(pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))));
}
