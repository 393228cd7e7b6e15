//! What was begun for a Machine and not finished: a config, and perhaps infrastructure, that no Machine has. The config
//! is made first, so everything that was begun is found by its config.

use super::BY_LABEL;
use api::EtcdCluster;
use controller_support::external::MachineView;
use controller_support::{Cached, Index};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use std::collections::BTreeSet;

/// Machines by the names that they take: that of the Machine, and those of the config and the infrastructure that it
/// refers to.
const BY_NAMES_TAKEN: Index = Index::new("names taken", |machine| {
    let view = MachineView::read(machine);
    let parts = [view.bootstrap_config, view.infrastructure].into_iter().flatten().map(|reference| reference.name);
    parts.chain([view.name]).collect()
});

/// Names of our configs that no Machine uses or has used, and whose names no Machine takes.
pub(super) fn begun(configs: &Cached, machines: &Cached, etcd: &EtcdCluster, namespace: &str) -> BTreeSet<String> {
    let uid = etcd.uid();
    let labelled = configs.by_index(&BY_LABEL, namespace, &etcd.name_any());
    let unused = labelled.iter().filter(|config| whose(config, uid.as_deref()) == Whose::Ours);
    let is_free = |name: &String| machines.by_index(&BY_NAMES_TAKEN, namespace, name).is_empty();
    unused.map(|config| config.name_any()).filter(is_free).collect()
}

/// The owner of an object that has the name of an object that we make for a Machine.
#[derive(Debug, PartialEq)]
pub(crate) enum Whose {
    /// The object is ours, and no Machine has it yet: a manager was killed or refused before it made the Machine.
    Ours,
    /// The object is being deleted, or is about to be deleted with the EtcdCluster that it was made for.
    Leaving,
    /// The object is ours, and a Machine has it or has had it: this Machine, if the owner references name one.
    Used(Option<OwnerReference>),
    /// The object belongs to another owner, or to no owner.
    Others,
}

pub(crate) fn whose(there: &DynamicObject, etcd: Option<&str>) -> Whose {
    let owners = there.owner_references();
    let machine = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "Machine");
    let ours = owners.iter().any(|owner| Some(owner.uid.as_str()) == etcd);
    match machine {
        _ if there.metadata.deletion_timestamp.is_some() => Whose::Leaving,
        Some(machine) if ours => Whose::Used(Some(machine.clone())),
        None if ours && shows_use(&there.data) => Whose::Used(None),
        None if ours => Whose::Ours,
        _ if owners.iter().any(|owner| owner.kind == "EtcdCluster") => Whose::Leaving,
        _ => Whose::Others,
    }
}

/// Whether a config has bootstrap data, or infrastructure is provisioned, by either contract. If so, a Machine has had
/// it. The owner references do not show a Machine that was deleted by force: if there is another owner, the garbage
/// collector removes only the reference to the owner that is gone.
fn shows_use(object: &Value) -> bool {
    let names = ["/status/dataSecretName", "/spec/providerID"];
    let flags = ["/status/initialization/dataSecretCreated", "/status/initialization/provisioned", "/status/ready"];
    let is_named = |at: &str| object.pointer(at).and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let is_set = |at: &str| object.pointer(at).and_then(Value::as_bool) == Some(true);
    names.into_iter().any(is_named) || flags.into_iter().any(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use api::{EtcdadmConfig, names};
    use kube::core::GroupVersionKind;
    use kube::discovery::ApiResource;
    use serde_json::json;

    fn owner(kind: &str, uid: &str, controller: bool) -> Value {
        json!({"apiVersion": "g/v1", "kind": kind, "name": "x", "uid": uid, "controller": controller})
    }

    #[test]
    fn what_a_machine_has_used_is_not_used_again() {
        let object = |object: Value| whose(&serde_json::from_value(object).unwrap(), Some("etcd-uid"));
        let whose = |metadata: Value| object(json!({"metadata": metadata}));
        let ours = owner("EtcdCluster", "etcd-uid", false);
        assert_eq!(whose(json!({"ownerReferences": [ours]})), Whose::Ours);
        let used = whose(json!({"ownerReferences": [ours, owner("Machine", "m", true)]}));
        assert!(matches!(used, Whose::Used(Some(machine)) if machine.uid == "m"));
        let leaving = json!({"ownerReferences": [ours], "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(whose(leaving), Whose::Leaving);
        assert_eq!(whose(json!({"ownerReferences": [owner("EtcdCluster", "earlier", false)]})), Whose::Leaving);
        assert_eq!(whose(json!({})), Whose::Others);

        let left = |more: Value| {
            let mut left = json!({"metadata": {"ownerReferences": [ours]}});
            left.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object(left)
        };
        for used in [
            json!({"status": {"dataSecretName": "a"}}),
            json!({"status": {"initialization": {"dataSecretCreated": true}}}),
            json!({"status": {"initialization": {"provisioned": true}}}),
            json!({"status": {"ready": true}}),
            json!({"spec": {"providerID": "local://a"}}),
        ] {
            assert_eq!(left(used.clone()), Whose::Used(None), "{used}");
        }
        let waiting = json!({"ready": false, "initialization": {"dataSecretCreated": false, "provisioned": false}});
        assert_eq!(left(json!({"spec": {"providerID": ""}, "status": waiting})), Whose::Ours);
    }

    #[test]
    fn what_no_machine_has_was_begun() {
        let object = |kind: &str, name: &str, label: &str, owners: &[Value]| {
            let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners,
                "labels": {names::ETCD_CLUSTER_LABEL: label}});
            json!({"apiVersion": "g/v1", "kind": kind, "metadata": metadata})
        };
        let config = |name: &str, label: &str, owners: &[Value]| object("EtcdadmConfig", name, label, owners);
        let ours = || owner("EtcdCluster", "etcd-uid", false);
        // Its Machine was deleted by force, and the garbage collector has removed the owner reference.
        let mut forced = config("forced", "demo-etcd", &[ours()]);
        forced["status"]["dataSecretName"] = json!("forced");
        let configs = vec![
            config("begun", "demo-etcd", &[ours()]),
            config("used", "demo-etcd", &[ours(), owner("Machine", "m", true)]),
            forced,
            config("not-taken-yet", "demo-etcd", &[ours()]),
            config("its-config", "demo-etcd", &[ours()]),
            config("its-infrastructure", "demo-etcd", &[ours()]),
            config("earlier", "demo-etcd", &[owner("EtcdCluster", "earlier", false)]),
            config("beside", "other-etcd", &[ours()]),
        ];
        let mut another = object("Machine", "another", "demo-etcd", &[]);
        let reference = |name: &str| json!({"apiGroup": "g", "kind": "Kind", "name": name});
        another["spec"] = json!({"bootstrap": {"configRef": reference("its-config")},
            "infrastructureRef": reference("its-infrastructure")});
        let machine = object("Machine", "not-taken-yet", "demo-etcd", &[owner("EtcdCluster", "etcd-uid", true)]);
        let watch = |kind: &ApiResource, objects: Vec<Value>| {
            Cached::fixed(kind, objects.into_iter().map(|object| serde_json::from_value(object).unwrap()).collect())
        };
        let configs = watch(&ApiResource::erase::<EtcdadmConfig>(&()), configs);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
        let machines = watch(&kind, vec![machine, another]);
        let story = Story::new(3);
        let found = begun(&configs, &machines, &story.observation.etcd, "default");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["begun"]);
    }
}
