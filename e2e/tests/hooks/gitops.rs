//! A GitOps loop that restores the placeholder, with and without the admission policy that keeps the real endpoints.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::apply::apply;
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{ControlPlane, PLACEHOLDER, SOON, Stage};

const RULE: &str = include_str!("../../../config/admission/etcd-endpoints.yaml");
const ONE: &str = "https://10.0.0.1:2379";
const TWO: &str = "https://10.0.0.2:2379";
const STALE: &str = "https://10.0.0.8:2379";
const KCP: &str = "KubeadmControlPlane";

const STRIPS_PAUSES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: strips-pauses
spec:
  failurePolicy: Ignore
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules:
      - apiGroups: [controlplane.cluster.x-k8s.io]
        apiVersions: ['*']
        operations: [UPDATE]
        resources: [kubeadmcontrolplanes]
  matchConditions:
    - name: is-paused
      expression: \"'cluster.x-k8s.io/paused' in object.metadata.?annotations.orValue({})\"
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: \"[JSONPatch{op: 'remove', path: '/metadata/annotations/cluster.x-k8s.io~1paused'}]\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: strips-pauses
spec:
  policyName: strips-pauses
";

pub(crate) async fn restores(stage: &mut Stage) -> Result<()> {
    without_the_rule(stage).await?;
    while_the_hook_is_away(stage).await?;
    with_the_rule(stage).await?;
    endpoints_are_left_out(stage).await?;
    pause_is_stripped(stage).await
}

async fn with_the_rule(stage: &Stage) -> Result<()> {
    apply(&stage.plane.client(), RULE).await?;
    stage.apply_cluster("kept", |_| ()).await?;
    stage.provide_etcd("kept", ONE).await?;
    stage.until_says("kept", "True Ready").await?;
    until("the rule is in force", SOON, async || {
        ensure!(restore(stage, "kept").await?.endpoints == [ONE], "the placeholder is back");
        Ok(Some(()))
    })
    .await?;
    stage.until_says("kept", "True Ready").await?;
    let before = generation(stage, "kept").await?;
    for _ in 0..200 {
        ensure!(restore(stage, "kept").await?.endpoints == [ONE], "the placeholder is back");
    }
    let after = generation(stage, "kept").await?;
    ensure!(after - before <= 1, "the generation went from {before} to {after}");
    // Cluster API's own webhook judges what the policy admits.
    let removed = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": null}}}}});
    ensure!(stage.change(KCP, "kept-cp", removed).await.is_err(), "external etcd became local");
    Ok(())
}

/// With the rule, the manifest is applied again with the placeholder, by force: whoever applies it manages the field now,
/// and not the hook. Then the manifest leaves the endpoints out, as the documentation recommends.
async fn endpoints_are_left_out(stage: &Stage) -> Result<()> {
    stage.apply_cluster("left-out", |_| ()).await?;
    stage.provide_etcd("left-out", ONE).await?;
    stage.until_says("left-out", "True Ready").await?;
    stage.apply_cluster("left-out", |_| ()).await?;
    let leaves_out = |document: &mut Value| {
        if document["kind"] == KCP {
            let external = &mut document["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"]["external"];
            external.as_object_mut().and_then(|external| external.remove("endpoints"));
        }
    };
    let before = generation(stage, "left-out").await?;
    stage.apply_cluster("left-out", leaves_out).await?;
    let control_plane = stage.control_plane("left-out").await?;
    ensure!(control_plane.endpoints == [ONE] && !control_plane.paused, "it is {control_plane:?}");
    let after = generation(stage, "left-out").await?;
    ensure!(after == before, "the generation went from {before} to {after}");
    stage.until_says("left-out", "True Ready").await
}

async fn without_the_rule(stage: &Stage) -> Result<()> {
    stage.apply_cluster("fought", |_| ()).await?;
    stage.provide_etcd("fought", ONE).await?;
    stage.until_says("fought", "True Ready").await?;
    let before = generation(stage, "fought").await?;
    for _ in 0..200 {
        restore(stage, "fought").await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.until_says("fought", "False EndpointsRevertedByOthers").await?;
    ensure!(stage.control_plane("fought").await?.paused, "a machine could be made of the placeholder");
    let after = generation(stage, "fought").await?;
    ensure!(after - before <= 6, "the generation went from {before} to {after}");
    // Once the loop is over, the hook writes last.
    stage.until_says("fought", "True Ready").await?;
    stage.until_control_plane("fought", false, &[ONE]).await
}

/// Another list is written while no hook runs and etcd is not Ready. The next hook knows which endpoints the control
/// plane was given.
async fn while_the_hook_is_away(stage: &mut Stage) -> Result<()> {
    stage.apply_cluster("away", |_| ()).await?;
    stage.provide_etcd("away", ONE).await?;
    stage.until_says("away", "True Ready").await?;
    stage.kill_hook(0);
    stage.report("away", false, TWO, "1 of 3").await?;
    let external = json!({"endpoints": [STALE]});
    let body = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}}}}});
    stage.change(KCP, "away-cp", body).await?;
    stage.start_hook(0).await?;
    stage.until_control_plane("away", false, &[ONE]).await?;
    stage.report("away", true, TWO, "").await?;
    stage.until_control_plane("away", false, &[TWO]).await?;

    // A person writes other endpoints, and clears the annotation to say that this is intended.
    stage.report("away", false, TWO, "1 of 3").await?;
    stage.until_says("away", "False WaitingForEtcd").await?;
    let metadata = json!({"annotations": {"etcdcluster.cluster.x-k8s.io/written-endpoints": ""}});
    let external = json!({"endpoints": [STALE]});
    let spec = json!({"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}}}});
    stage.change(KCP, "away-cp", json!({"metadata": metadata, "spec": spec})).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    stage.until_control_plane("away", false, &[STALE]).await?;
    stage.report("away", true, TWO, "").await?;
    stage.until_control_plane("away", false, &[TWO]).await
}

/// An admission rule of the user removes every pause. The hook reports that on the Cluster.
async fn pause_is_stripped(stage: &Stage) -> Result<()> {
    apply(&stage.plane.client(), STRIPS_PAUSES).await?;
    until("the rule is in force", SOON, async || {
        let body = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "mine"}}});
        let parameters = PatchParams { dry_run: true, ..PatchParams::default() };
        let answer = stage.api(KCP).patch("kept-cp", &parameters, &Patch::Merge(&body)).await?;
        ensure!(!ControlPlane::of(&answer).paused, "the pause is kept");
        Ok(Some(()))
    })
    .await?;
    stage.apply_cluster("stripped", |_| ()).await?;
    let says =
        "Unknown RefusedByApiServer step Pause was taken and is needed again at once: KubeadmControlPlane stripped-cp";
    stage.until_says("stripped", says).await
}

/// Does what `kubectl apply` of the same manifest does. Returns the control plane from the answer: a later read could
/// show the hook's reaction.
async fn restore(stage: &Stage, cluster: &str) -> Result<ControlPlane> {
    let external: Value = json!({"endpoints": [PLACEHOLDER]});
    let body = json!({"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}}}}});
    let patch = Patch::Merge(&body);
    Ok(ControlPlane::of(&stage.api(KCP).patch(&format!("{cluster}-cp"), &PatchParams::default(), &patch).await?))
}

async fn generation(stage: &Stage, cluster: &str) -> Result<i64> {
    Ok(stage.api(KCP).get(&format!("{cluster}-cp")).await?.metadata.generation.unwrap_or_default())
}
