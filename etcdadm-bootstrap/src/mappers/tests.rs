use super::*;
use crate::fixture::{cluster, machine, object};
use serde_json::json;

/// In namespace default: `a` waits for demo, `b` has its data, `c` is of another Cluster, `d` has no label.
fn configs(namespace: &str, key: &str) -> Vec<Arc<DynamicObject>> {
    let add = |name: &str, namespace: &str, label: Option<&str>, ready: bool| {
        let labels = label.map(|label| json!({"cluster.x-k8s.io/cluster-name": label}));
        object(json!({
            "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "EtcdadmConfig",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {}, "status": {"ready": ready}
        }))
    };
    let all = [
        add("a", "default", Some("demo"), false),
        add("b", "default", Some("demo"), true),
        add("c", "default", Some("other"), false),
        add("d", "default", None, false),
        add("e", "elsewhere", Some("demo"), false),
    ];
    let found = all.into_iter().filter(|c| c.namespace().as_deref() == Some(namespace) && label(c) == key);
    found.map(Arc::new).collect()
}

fn names_of(refs: Refs) -> Vec<String> {
    let mut names: Vec<String> = refs.into_iter().map(|r| r.name).collect();
    names.sort();
    names
}

fn named(kind: &str, name: &str) -> DynamicObject {
    object(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}))
}

#[test]
fn a_machine_concerns_its_config_and_those_that_wait() {
    assert_eq!(names_of(machine_to_configs(&configs, &machine())), ["a", "d", "demo-etcd-0"]);
}

#[test]
fn a_cluster_concerns_all_of_its_configs() {
    assert_eq!(names_of(cluster_to_configs(&configs, &cluster())), ["a", "b", "d"]);
}

#[test]
fn a_secret_concerns_its_owner_or_those_that_wait_for_it() {
    let of = |secret: &DynamicObject| names_of(secret_to_configs(&configs, secret));
    assert_eq!(of(&named("Secret", "demo-managed-etcd")), ["a", "d"]);
    assert_eq!(of(&named("Secret", "demo-etcd-init")), ["a", "d"]);
    assert!(of(&named("Secret", "demo-apiserver-etcd-client")).is_empty());
    let data = object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
        "name": "b", "namespace": "default",
        "ownerReferences": [{"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "EtcdadmConfig", "name": "b", "uid": "u"}]
    }}));
    assert_eq!(of(&data), ["b"]);
}

#[test]
fn a_lock_concerns_those_that_wait() {
    assert_eq!(names_of(lock_to_configs(&configs, &named("ConfigMap", "demo-etcd-lock"))), ["a", "d"]);
    assert!(lock_to_configs(&configs, &named("ConfigMap", "kube-root-ca.crt")).is_empty());
}
