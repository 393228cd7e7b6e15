//! `EtcdClusterHealthy` of an unmodified KubeadmControlPlane: Cluster API leaves this condition to us, and writes it
//! nevertheless.

use anyhow::{Context, Result, ensure};
use e2e::plane::Mark;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{HOOKS, PLACEHOLDER, SOON, Stage};

const ONE: &str = "https://10.0.0.1:2379";
const KCP: &str = "KubeadmControlPlane";
const TYPE: &str = "EtcdClusterHealthy";
const COMPONENTS: &str = "ControlPlaneComponentsHealthy";

pub(crate) async fn tells(stage: &mut Stage) -> Result<()> {
    stage.apply_cluster("demo", |_| ()).await?;
    stage.until_control_plane("demo", true, &[PLACEHOLDER]).await?;
    // While held back, the control plane does not write the condition itself.
    stage.until_tells(KCP, "demo-cp", TYPE, "Unknown EtcdNotFound").await?;
    stage.apply_etcd("demo").await?;
    stage.report("demo", false, "", "1 of 3 members").await?;
    let waits = "False WaitingForEtcd OtherEtcd demo-etcd is not ready: ScalingUp: 1 of 3 members";
    stage.until_tells(KCP, "demo-cp", TYPE, waits).await?;

    // Once released, it reports in every reconcile that it is not initialized.
    stage.provide_etcd("demo", ONE).await?;
    stage.until_says("demo", "True Ready").await?;
    let waits = "Unknown InspectionFailed Waiting for Cluster control plane to be initialized";
    stage.until_tells(KCP, "demo-cp", TYPE, waits).await?;
    let mark = stage.plane.mark();
    reconciles(stage).await?;
    stage.until_tells(KCP, "demo-cp", TYPE, waits).await?;
    quiet(stage, mark)?;

    // Once initialized, it leaves the condition as it was.
    initialize(stage).await?;
    stage.until_tells(KCP, "demo-cp", TYPE, "True Ready").await?;
    let mark = stage.plane.mark();
    reconciles(stage).await?;
    stage.until_tells(KCP, "demo-cp", TYPE, "True Ready").await?;
    quiet(stage, mark)?;
    stage.report("demo", false, ONE, "a member is away").await?;
    let waits = "False WaitingForEtcd OtherEtcd demo-etcd is not ready: ScalingUp: a member is away";
    stage.until_tells(KCP, "demo-cp", TYPE, waits).await?;

    // If the Cluster no longer names an etcd, the hook removes its conditions.
    let body = json!({"metadata": {"annotations": {"etcdcluster.cluster.x-k8s.io/managed-external-etcd": null}}});
    stage.change("Cluster", "demo", body).await?;
    until("nothing of ours is left", SOON, async || {
        let (cluster, control_plane) = (stage.says("demo").await?, stage.tells(KCP, "demo-cp", TYPE).await?);
        ensure!(cluster.is_none() && control_plane.is_none(), "{cluster:?} {control_plane:?}");
        Ok(Some(()))
    })
    .await
}

/// Lets the control plane reconcile a few times. A condition that it writes itself shows this.
async fn reconciles(stage: &Stage) -> Result<()> {
    for round in 0..5 {
        let metadata = json!({"annotations": {"example.org/round": round.to_string()}});
        stage.change(KCP, "demo-cp", json!({"spec": {"machineTemplate": {"metadata": metadata}}})).await?;
        until("it has reconciled", SOON, async || {
            let control_plane = stage.api(KCP).get("demo-cp").await?;
            let seen =
                condition(&control_plane.data, "Deleting").map(|deleting| deleting["observedGeneration"].as_i64());
            let generation = control_plane.metadata.generation;
            ensure!(seen == Some(generation), "it has seen {seen:?}, and not yet {generation:?}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// Acts as an API server that has come up. Cluster API sees it, and then leaves the condition about etcd as it is.
async fn initialize(stage: &Stage) -> Result<()> {
    until("the control plane is initialized", SOON, async || {
        let mut control_plane = stage.api(KCP).get("demo-cp").await?;
        let since = control_plane.metadata.creation_timestamp.clone().context("it has been created")?;
        let good = |condition: &Value| condition["status"] == "True";
        let done =
            ["Initialized", COMPONENTS].iter().all(|type_| condition(&control_plane.data, type_).is_some_and(good));
        if done {
            return Ok(Some(()));
        }
        let version = control_plane.resource_version();
        let conditions = control_plane.data.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        let conditions = conditions.context("it has conditions")?;
        for condition in conditions.iter_mut().filter(|c| c["type"] == "Initialized" || c["type"] == COMPONENTS) {
            condition["status"] = json!("True");
            condition["message"] = json!("");
            condition["lastTransitionTime"] = json!(since);
        }
        let body = json!({"metadata": {"resourceVersion": version},
            "status": {"initialization": {"controlPlaneInitialized": true}, "conditions": conditions}});
        // The object may have changed meanwhile.
        let _ = stage.api(KCP).patch_status("demo-cp", &PatchParams::default(), &Patch::Merge(&body)).await;
        Ok(None)
    })
    .await
}

fn condition<'a>(data: &'a Value, type_: &str) -> Option<&'a Value> {
    data.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// Checks that we have written no condition of the control plane.
fn quiet(stage: &Stage, mark: Mark) -> Result<()> {
    let ours = stage.plane.requests_since(mark)?.user(HOOKS[0]).resource("kubeadmcontrolplanes");
    ensure!(ours.filter(|request| request.subresource == "status").is_empty(), "{ours}");
    Ok(())
}
