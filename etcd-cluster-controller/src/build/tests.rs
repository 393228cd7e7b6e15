//! Desired objects as snapshots.

use super::*;
use crate::fixture::{Story, local_machine};
use crate::observation::Template;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;

fn machine_kind(version: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(names::CLUSTER_GROUP, version, "Machine"))
}

fn story() -> Story {
    let mut story = Story::new(3);
    let metadata = json!({"labels": {"team": "storage"}, "annotations": {"note": "etcd"}});
    story.etcd().spec.machine_template = Some(serde_json::from_value(json!({"metadata": metadata})).unwrap());
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.15".to_owned());
    story
}

#[test]
fn the_three_objects_of_a_member() {
    let story = story();
    let kind = local_machine();
    let parts = MachineParts { etcd: &story.seen.etcd, cluster: "demo", name: "demo-etcd-0", infrastructure: &kind };
    let Template::Found { template, .. } = &story.seen.template else { panic!("no template") };
    let all = json!([
        infrastructure(&parts, template).unwrap(),
        config(&parts),
        machine(&parts, &machine_kind("v1beta2")),
        machine(&parts, &machine_kind("v1beta1")).data,
    ]);
    insta::assert_yaml_snapshot!(all);
}

#[test]
fn the_secrets() {
    let etcd = &story().seen.etcd;
    let all = json!([
        ca_secret(etcd, "demo", "CERT", "KEY"),
        control_plane_ca_secret(etcd, "demo", "CERT"),
        client_secret(etcd, "demo", "CERT", "KEY"),
        init_secret(etcd, "demo", "10.0.0.1", "https://10.0.0.1:2379", "uid-0"),
    ]);
    insta::assert_yaml_snapshot!(all);
}

#[test]
fn a_template_without_a_spec_is_refused() {
    let mut story = story();
    let kind = local_machine();
    let Template::Found { template, .. } = &mut story.seen.template else { panic!("no template") };
    let mut empty = template.as_ref().clone();
    empty.data = json!({"spec": {}});
    let parts = MachineParts { etcd: &story.seen.etcd, cluster: "demo", name: "demo-etcd-0", infrastructure: &kind };
    assert!(infrastructure(&parts, &empty).unwrap_err().contains("spec.template.spec"));
}

#[test]
fn the_fingerprint_follows_what_a_machine_is_made_from() {
    let mut story = story();
    let before = spec_hash(&story.seen.etcd);
    story.etcd().spec.replicas = 5;
    story.etcd().spec.health_check.interval_seconds = 5;
    assert_eq!(spec_hash(&story.seen.etcd), before);
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.16".to_owned());
    assert_ne!(spec_hash(&story.seen.etcd), before);
}
