//! The template of the members' infrastructure.

use super::case::{Case, says};
use crate::bring_up::PATIENCE;
use anyhow::{Result, bail};
use e2e::apply::apply_object;
use e2e::bed::Bed;
use e2e::until::until;
use serde_json::{Value, json};

const MISSING: &str = "InfrastructureTemplateNotFound";

pub(super) async fn name_that_does_not_exist(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "template-name").await?;
    let is_template =
        |document: &Value| document["kind"] == "LocalMachineTemplate" && document["metadata"]["name"] == "demo-etcd";
    case.apply_only(|document| !is_template(document), "EtcdCluster", |_| {}).await?;
    let message = case.until_etcd_says(MISSING).await?;
    says(&message, &["spec.infrastructureTemplate", "LocalMachineTemplate demo-etcd", &case.handle.namespace])?;
    case.no_machine_was_made().await?;
    case.apply_only(is_template, "EtcdCluster", |_| {}).await?;
    case.comes_up().await
}

pub(super) async fn kind_that_does_not_exist(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "template-kind").await?;
    let right = case.manifests.clone().document("EtcdCluster")["spec"]["infrastructureTemplate"].clone();
    case.apply("EtcdCluster", |etcd| {
        etcd["spec"]["infrastructureTemplate"] =
            json!({"apiGroup": "nowhere.example", "kind": "NowhereMachineTemplate", "name": "demo-etcd"});
    })
    .await?;
    let message = case.until_etcd_says(MISSING).await?;
    says(&message, &["spec.infrastructureTemplate", "kind NowhereMachineTemplate.nowhere.example does not exist"])?;
    case.no_machine_was_made().await?;

    // The kind's provider is installed: now only the template is missing.
    for kind in ["NowhereMachine", "NowhereMachineTemplate"] {
        apply_object(&bed.client(), &crd(kind)).await?;
    }
    until("the kind is found", PATIENCE, async || {
        let message = case.until_etcd_says(MISSING).await?;
        if !message.contains("NowhereMachineTemplate demo-etcd does not exist") {
            bail!("{message}");
        }
        Ok(Some(()))
    })
    .await?;
    case.no_machine_was_made().await?;

    let fields = json!({"apiGroup": right["apiGroup"], "kind": right["kind"], "name": right["name"]});
    case.patch("EtcdCluster", "demo-etcd", &json!({"spec": {"infrastructureTemplate": fields}})).await?;
    case.comes_up().await
}

pub(super) async fn another_namespace(bed: &Bed) -> Result<()> {
    let case = Case::new(bed, "template-namespace").await?;
    case.apply("EtcdCluster", |etcd| etcd["spec"]["infrastructureTemplate"]["namespace"] = json!("elsewhere")).await?;
    let message = case.until_etcd_says("InfrastructureTemplateInvalid").await?;
    says(&message, &["spec.infrastructureTemplate.namespace is elsewhere", "own namespace"])?;
    case.nothing_was_made().await?;
    let own = json!({"spec": {"infrastructureTemplate": {"namespace": case.handle.namespace}}});
    case.patch("EtcdCluster", "demo-etcd", &own).await?;
    case.comes_up().await
}

/// The CRD of a kind of infrastructure that no controller reconciles.
fn crd(kind: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.nowhere.example"), "labels": {"cluster.x-k8s.io/v1beta2": "v1"}},
        "spec": {
            "group": "nowhere.example", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}
