//! What was begun for a Machine: its config and its infrastructure, as long as no Machine has them. The config is made
//! first, so whatever was begun is found by it.

use super::BY_LABEL;
use api::EtcdCluster;
use controller_support::Cached;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use std::collections::BTreeSet;

/// Names of the configs of ours that no Machine has, and that there is no Machine for.
pub(super) fn begun(configs: &Cached, machines: &Cached, etcd: &EtcdCluster, namespace: &str) -> BTreeSet<String> {
    let uid = etcd.uid();
    let labelled = configs.by_index(&BY_LABEL, namespace, &etcd.name_any());
    let unused = labelled.iter().filter(|config| whose(&config.metadata, uid.as_deref()) == Whose::Ours);
    unused.map(|config| config.name_any()).filter(|name| machines.get(namespace, name).is_none()).collect()
}

/// Whose an object is that has the name of one that we make for a Machine.
#[derive(Debug, PartialEq)]
pub(crate) enum Whose {
    /// Ours, and of no Machine yet: left by a manager that was killed or refused.
    Ours,
    /// It is being deleted, or about to be with the EtcdCluster that it was made for.
    Leaving,
    /// Ours, and in the hands of this Machine.
    Machines(OwnerReference),
    /// Somebody else's.
    Others,
}

pub(crate) fn whose(there: &ObjectMeta, etcd: Option<&str>) -> Whose {
    let owners = there.owner_references.as_deref().unwrap_or_default();
    let machine = owners.iter().find(|owner| owner.controller == Some(true) && owner.kind == "Machine");
    let ours = owners.iter().any(|owner| Some(owner.uid.as_str()) == etcd);
    match machine {
        _ if there.deletion_timestamp.is_some() => Whose::Leaving,
        Some(machine) if ours => Whose::Machines(machine.clone()),
        None if ours => Whose::Ours,
        _ if owners.iter().any(|owner| owner.kind == "EtcdCluster") => Whose::Leaving,
        _ => Whose::Others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use api::{EtcdadmConfig, names};
    use kube::core::GroupVersionKind;
    use kube::discovery::ApiResource;
    use serde_json::{Value, json};

    fn owner(kind: &str, uid: &str, controller: bool) -> Value {
        json!({"apiVersion": "g/v1", "kind": kind, "name": "x", "uid": uid, "controller": controller})
    }

    #[test]
    fn what_a_machine_has_used_is_not_used_again() {
        let whose = |metadata| whose(&serde_json::from_value(metadata).unwrap(), Some("etcd-uid"));
        let ours = owner("EtcdCluster", "etcd-uid", false);
        assert_eq!(whose(json!({"ownerReferences": [ours]})), Whose::Ours);
        let used = whose(json!({"ownerReferences": [ours, owner("Machine", "m", true)]}));
        assert!(matches!(used, Whose::Machines(machine) if machine.uid == "m"));
        let leaving = json!({"ownerReferences": [ours], "deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(whose(leaving), Whose::Leaving);
        assert_eq!(whose(json!({"ownerReferences": [owner("EtcdCluster", "earlier", false)]})), Whose::Leaving);
        assert_eq!(whose(json!({})), Whose::Others);
    }

    #[test]
    fn what_no_machine_has_was_begun() {
        let object = |kind: &str, name: &str, label: &str, owners: &[Value]| {
            let metadata = json!({"name": name, "namespace": "default", "ownerReferences": owners,
                "labels": {names::ETCD_CLUSTER_LABEL: label}});
            serde_json::from_value(json!({"apiVersion": "g/v1", "kind": kind, "metadata": metadata})).unwrap()
        };
        let config = |name: &str, label: &str, owners: &[Value]| object("EtcdadmConfig", name, label, owners);
        let ours = || owner("EtcdCluster", "etcd-uid", false);
        let configs = vec![
            config("begun", "demo-etcd", &[ours()]),
            config("used", "demo-etcd", &[ours(), owner("Machine", "m", true)]),
            config("not-taken-yet", "demo-etcd", &[ours()]),
            config("earlier", "demo-etcd", &[owner("EtcdCluster", "earlier", false)]),
            config("beside", "other-etcd", &[ours()]),
        ];
        let machines = vec![object("Machine", "not-taken-yet", "demo-etcd", &[owner("EtcdCluster", "etcd-uid", true)])];
        let configs = Cached::fixed(&ApiResource::erase::<EtcdadmConfig>(&()), configs);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
        let machines = Cached::fixed(&kind, machines);
        let story = Story::new(3);
        let found = begun(&configs, &machines, &story.observation.etcd, "default");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["begun"]);
    }
}
