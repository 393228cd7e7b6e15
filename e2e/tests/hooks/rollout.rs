//! Control planes that roll out. The scenario acts as their provider, because a real rollout would need machines that
//! run.

use anyhow::{Result, ensure};
use e2e::until::until;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use crate::control_planes::{Announces, control_plane_crd, with_control_plane};
use crate::stage::{HOOKS, SOON, Stage};

const ONE: &str = "https://10.0.0.1:2379";
const TWO: &str = "https://10.0.0.2:2379";
const CONDITION: &str = "EtcdHealthy";

pub(crate) async fn in_use(stage: &mut Stage) -> Result<()> {
    for (cluster, kind, contract, done) in [
        ("newer", "NewerControlPlane", "v1beta2", "upToDateReplicas"),
        ("older", "OlderControlPlane", "v1beta1", "updatedReplicas"),
    ] {
        let announces = Announces { path: Some("spec.etcd.external"), condition: Some(CONDITION) };
        stage.plane.apply_crds(&[control_plane_crd(kind, contract, &announces)]).await?;
        rolls(stage, cluster, kind, done).await?;
    }
    Ok(())
}

async fn rolls(stage: &mut Stage, cluster: &str, kind: &str, done: &str) -> Result<()> {
    let cp = format!("{cluster}-cp");
    let status = |generation: i64, replicas: i64, up_to_date: i64| -> Value {
        json!({"observedGeneration": generation, "replicas": replicas, done: up_to_date,
            "initialized": true, "initialization": {"controlPlaneInitialized": true}})
    };
    stage.apply_cluster(cluster, with_control_plane(kind)).await?;
    stage.provide_etcd(cluster, ONE).await?;
    stage.until_says(cluster, "True Ready").await?;
    stage.until_tells(kind, &cp, CONDITION, "True Ready").await?;
    stage.until_in_use(cluster, &[&[ONE]]).await?;
    let first = generation(stage, kind, &cp).await?;
    stage.set_status(kind, &cp, status(first, 3, 3)).await?;

    // The old endpoint stays in use, whatever happens, until the last machine has been replaced.
    stage.report(cluster, true, TWO, "").await?;
    let rolling = |how_far: &str| format!("True ControlPlaneRollingOut {kind} {cp} replaces its machines ({how_far})");
    stage.until_says(cluster, &rolling("it has not reported on them yet")).await?;
    stage.until_in_use(cluster, &[&[ONE], &[TWO]]).await?;
    let second = generation(stage, kind, &cp).await?;
    ensure!(second > first, "the endpoints are not in the spec");
    for (replicas, up_to_date, hook_dies) in [(4, 1, true), (4, 3, false), (2, 1, true)] {
        if hook_dies {
            stage.kill_hook(0);
        }
        stage.set_status(kind, &cp, status(second, replicas, up_to_date)).await?;
        if hook_dies {
            stage.start_hook(0).await?;
        }
        let how_far = rolling(&format!("{up_to_date} of {replicas} are up to date"));
        stage.until_says(cluster, &how_far).await?;
        stage.until_tells(kind, &cp, CONDITION, &how_far).await?;
        stage.until_in_use(cluster, &[&[ONE], &[TWO]]).await?;
    }
    // If etcd is not ready, the list of endpoints in use stays, and the rollout is still reported.
    stage.report(cluster, false, TWO, "a member is away").await?;
    let also = format!("a member is away; {kind} {cp} replaces its machines (1 of 2 are up to date)");
    let says = format!("False WaitingForEtcd OtherEtcd {cluster}-etcd is not ready: ScalingUp: {also}");
    stage.until_says(cluster, &says).await?;
    stage.until_tells(kind, &cp, CONDITION, &says).await?;
    stage.until_in_use(cluster, &[&[ONE], &[TWO]]).await?;

    let mark = stage.plane.mark();
    stage.set_status(kind, &cp, status(second, 3, 3)).await?;
    stage.until_in_use(cluster, &[&[TWO]]).await?;
    stage.report(cluster, true, TWO, "").await?;
    stage.until_says(cluster, "True Ready").await?;
    stage.until_tells(kind, &cp, CONDITION, "True Ready").await?;
    until("an event tells of the rollout", SOON, async || {
        let events: Api<Event> = Api::namespaced(stage.plane.client(), &stage.namespace);
        let events = events.list(&ListParams::default()).await?;
        let about = |event: &Event| event.regarding.as_ref().and_then(|about| about.name.clone());
        Ok(events
            .iter()
            .any(|event| {
                event.reason.as_deref() == Some("ControlPlaneRolledOut") && about(event).as_deref() == Some(cluster)
            })
            .then_some(()))
    })
    .await?;
    // Watches are renewed from time to time, whatever happens.
    let ours = stage.plane.requests_since(mark)?.user(HOOKS[0]).filter(|request| request.verb != "watch");
    println!("the end of a rollout:\n{ours}");
    ensure!(ours.len() <= 8, "{ours}");
    Ok(())
}

async fn generation(stage: &Stage, kind: &str, name: &str) -> Result<i64> {
    Ok(stage.api(kind).get(name).await?.metadata.generation.unwrap_or_default())
}
