//! Desired objects as snapshots.

use super::*;
use crate::fixture::{Story, local_machine};
use crate::observation::Template;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::json;

fn machine_kind(version: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(names::CLUSTER_GROUP, version, "Machine"))
}

fn story() -> Story {
    let mut story = Story::new(3);
    let metadata = json!({"labels": {"team": "storage"}, "annotations": {"note": "etcd"}});
    story.etcd().spec.machine_template = Some(serde_json::from_value(json!({"metadata": metadata})).unwrap());
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.15".to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.15");
    story
}

fn parts<'a>(story: &'a Story, kind: &'a ApiResource) -> MachineParts<'a> {
    let (etcd, cluster, name) = (&story.observation.etcd, "demo", "demo-etcd-0");
    MachineParts { etcd, cluster, name, infrastructure: kind, failure_domain: None, replaces: None }
}

#[test]
fn the_three_objects_of_a_member_are_for_the_manager_of_the_etcd_cluster() {
    let mut story = story();
    let filtered = |story: &Story| {
        let kind = local_machine();
        let parts = parts(story, &kind);
        let Template::Found { template, .. } = &story.observation.template else { panic!("no template") };
        let infrastructure = infrastructure(&parts, template).unwrap();
        let all =
            [infrastructure.metadata, config(&parts).metadata, machine(&parts, &machine_kind("v1beta2")).metadata];
        all.map(|metadata| metadata.labels.unwrap_or_default().get(names::WATCH_FILTER_LABEL).cloned())
    };
    assert_eq!(filtered(&story), [None, None, None]);
    let label = |value: &str| (names::WATCH_FILTER_LABEL.to_owned(), value.to_owned());
    story.etcd().metadata.labels.get_or_insert_default().extend([label("blue")]);
    assert_eq!(filtered(&story), ["blue", "blue", "blue"].map(|value| Some(value.to_owned())));
    story.etcd().spec.machine_template.get_or_insert_default().metadata.labels.extend([label("green")]);
    assert_eq!(filtered(&story), ["green", "green", "green"].map(|value| Some(value.to_owned())));
}

#[test]
fn the_three_objects_of_a_member() {
    let story = story();
    let kind = local_machine();
    let parts = parts(&story, &kind);
    let Template::Found { template, .. } = &story.observation.template else { panic!("no template") };
    let all = json!([
        infrastructure(&parts, template).unwrap(),
        config(&parts),
        machine(&parts, &machine_kind("v1beta2")),
        machine(&parts, &machine_kind("v1beta1")).data,
    ]);
    insta::assert_yaml_snapshot!(all);
}

#[test]
fn a_machine_is_for_a_failure_domain_in_either_version() {
    let story = story();
    let kind = local_machine();
    for version in ["v1beta1", "v1beta2"] {
        let domain = |failure_domain| {
            let parts = MachineParts { failure_domain, ..parts(&story, &kind) };
            machine(&parts, &machine_kind(version)).data["spec"].get("failureDomain").cloned()
        };
        assert_eq!((domain(Some("a")), domain(None)), (Some(json!("a")), None), "{version}");
    }
}

#[test]
fn a_new_machine_has_the_deletion_timeouts_of_the_spec() {
    let mut story = story();
    let template = story.etcd().spec.machine_template.get_or_insert_default();
    template.spec = Some(serde_json::from_value(json!({"deletion": {"nodeDrainTimeoutSeconds": 60}})).unwrap());
    let kind = local_machine();
    let made = |version: &str| machine(&parts(&story, &kind), &machine_kind(version)).data["spec"].clone();
    assert_eq!(made("v1beta2")["deletion"], json!({"nodeDrainTimeoutSeconds": 60}));
    assert_eq!(made("v1beta1")["nodeDrainTimeout"], "60s");
    assert_eq!(config(&parts(&story, &kind)).spec, story.observation.etcd.spec.etcdadm_config_spec, "only the Machine");
}

#[test]
fn the_secrets() {
    let etcd = &story().observation.etcd;
    let init = InitContent {
        address: "10.0.0.1",
        client_urls: "https://10.0.0.1:2379",
        cluster_id: "cdf818194e3a8c32",
        admitted: "uid-0",
    };
    let all = json!([
        ca_secret(etcd, "demo", "CERT", "KEY"),
        control_plane_ca_secret(etcd, "demo", "CERT"),
        client_secret(etcd, "demo", "CERT", "KEY"),
        init_secret(etcd, "demo", &init),
        metrics_client_secret(etcd, "demo", "CA", ("CERT", "KEY")),
    ]);
    insta::assert_yaml_snapshot!(all);
}

#[test]
fn a_template_without_a_spec_is_refused() {
    let mut story = story();
    let kind = local_machine();
    let Template::Found { template, .. } = &mut story.observation.template else { panic!("no template") };
    let mut empty = template.as_ref().clone();
    empty.data = json!({"spec": {}});
    let parts = parts(&story, &kind);
    assert!(infrastructure(&parts, &empty).unwrap_err().contains("spec.template.spec"));
}
