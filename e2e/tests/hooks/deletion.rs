use anyhow::{Context, Result, ensure};
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::stage::{PLACEHOLDER, SOON, Stage};

/// A finalizer that keeps a Machine until the scenario removes it.
const HOLD: &str = "example.org/hold";

pub(crate) async fn workers_first(stage: &mut Stage) -> Result<()> {
    stage.apply_cluster("demo", |_| ()).await?;
    stage.apply_etcd("demo").await?;
    stage.make_secret("demo", "etcd", true, "ca").await?;
    stage.make_secret("demo", "managed-etcd-apiserver-client", true, "client").await?;
    stage.report("demo", true, "https://10.0.0.1:2379", "").await?;
    stage.until_says("demo", "True Ready").await?;
    let etcd = stage.api("OtherEtcd").get("demo-etcd").await?;
    let owner = json!({"apiVersion": "example.org/v1", "kind": "OtherEtcd", "name": "demo-etcd", "uid": etcd.uid(), "controller": true});
    stage.apply(machine("demo-etcd-0", &[owner])).await?;
    stage.apply(machine("demo-worker-0", &[])).await?;

    until("Cluster API has adopted the worker", SOON, async || {
        let worker = stage.api("Machine").get("demo-worker-0").await?;
        Ok(worker.owner_references().iter().any(|owner| owner.kind == "Cluster").then_some(()))
    })
    .await?;

    stage.delete("Cluster", "demo").await?;
    stage
        .until_says(
            "demo",
            "False WaitingForWorkersDeletion etcd is deleted after the workers; left are Machine demo-worker-0",
        )
        .await?;
    ensure!(!is_deleting(stage, "OtherEtcd", "demo-etcd").await?, "etcd goes before the workers");
    let_go(stage, "demo-worker-0").await?;
    let_go(stage, "demo-etcd-0").await?;
    stage.until_gone("demo").await?;
    ensure!(stage.secret("demo-apiserver-etcd-client", "tls.crt").await?.is_none(), "the client Secret is left");
    Ok(())
}

pub(crate) async fn every_state(stage: &mut Stage) -> Result<()> {
    // Etcd is not ready, and we have paused the control plane.
    stage.apply_cluster("waiting", |_| ()).await?;
    stage.apply_etcd("waiting").await?;
    stage.until_says("waiting", "False WaitingForEtcd").await?;
    stage.until_control_plane("waiting", true, &[PLACEHOLDER]).await?;
    stage.delete("Cluster", "waiting").await?;
    stage.until_gone("waiting").await?;

    // Without an etcd. Then also without a control plane.
    stage.apply_cluster("alone", |_| ()).await?;
    stage.until_control_plane("alone", true, &[PLACEHOLDER]).await?;
    stage.delete("Cluster", "alone").await?;
    stage.until_gone("alone").await?;
    stage
        .apply_cluster("bare", |document| {
            if document["kind"] == "Cluster" {
                document["spec"]["controlPlaneRef"]["name"] = json!("nowhere");
            }
        })
        .await?;
    stage.apply_etcd("bare").await?;
    stage.until_says("bare", "False WaitingForEtcd").await?;
    stage.delete("Cluster", "bare").await?;
    stage.until_gone("bare").await?;

    // Machines of members whose etcd no longer exists: Cluster API has made the Cluster their owner.
    stage.apply_cluster("left", |_| ()).await?;
    stage.until_says("left", "False EtcdNotFound").await?;
    stage.apply(member("left", "left-etcd-0")).await?;
    until_adopted(stage, "left-etcd-0").await?;
    // A person has taken etcd's label from this one.
    let mut unlabelled = member("left", "left-etcd-1");
    unlabelled["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "left"});
    stage.apply(unlabelled).await?;
    until_adopted(stage, "left-etcd-1").await?;
    stage.delete("Cluster", "left").await?;
    stage.until_gone("left").await?;

    // The same, but the Cluster names no etcd: nothing leads to the etcd that the Machines belonged to.
    stage.apply_cluster("unnamed", |_| ()).await?;
    stage.change("Cluster", "unnamed", named(&Value::Null)).await?;
    until("the Cluster says nothing of an etcd", SOON, async || {
        Ok(stage.says("unnamed").await?.is_none().then_some(()))
    })
    .await?;
    stage.apply(member("unnamed", "unnamed-etcd-0")).await?;
    until_adopted(stage, "unnamed-etcd-0").await?;
    stage.delete("Cluster", "unnamed").await?;
    stage.until_gone("unnamed").await?;

    // The kind of etcd is not installed.
    stage
        .apply_cluster("unknown", |document| {
            if document["kind"] == "Cluster" {
                document["metadata"]["annotations"] =
                    json!({"etcdcluster.cluster.x-k8s.io/managed-external-etcd": "NoEtcd.example.org/x"});
            }
        })
        .await?;
    stage.until_control_plane("unknown", true, &[PLACEHOLDER]).await?;
    stage.delete("Cluster", "unknown").await?;
    stage.until_gone("unknown").await?;

    // Etcd objects that the Cluster no longer names. Nothing else would delete them, and their Machines keep the
    // Cluster.
    stage.apply_cluster("parted", |_| ()).await?;
    // The second one belongs to another provider.
    for (kind, etcd) in
        [("EtcdCluster", "parted-first"), ("OtherEtcd", "parted-second"), ("EtcdCluster", "parted-third")]
    {
        claimed(stage, "parted", kind, etcd).await?;
    }
    owned_twice(stage, "parted").await?;
    stage.change("Cluster", "parted", named(&Value::Null)).await?;
    until("the Cluster no longer says anything of an etcd", SOON, async || {
        Ok(stage.says("parted").await?.is_none().then_some(()))
    })
    .await?;
    // The owner alone says whose it was, as after `kubectl apply` of a manifest that once had the label.
    let no_label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": null}}});
    stage.change("EtcdCluster", "parted-first", no_label).await?;
    // Its Secrets alone say whose this one was, as after `kubectl replace`.
    let third = stage.api("EtcdCluster").get("parted-third").await?;
    let owner = json!({"apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
        "name": "parted-third", "uid": third.uid(), "controller": true});
    let labels = json!({"cluster.x-k8s.io/cluster-name": "parted", "cluster.x-k8s.io/etcd-cluster": "parted-third"});
    stage
        .apply(json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "parted-third-ca", "labels": labels, "ownerReferences": [owner]}}))
        .await?;
    let no_marks = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": null}, "ownerReferences": null}});
    stage.change("EtcdCluster", "parted-third", no_marks).await?;
    stage.delete("Cluster", "parted").await?;
    stage.until_gone("parted").await?;

    // A person is handing an etcd over to another Cluster, and has set the label only.
    stage.apply_cluster("taker", |_| ()).await?;
    stage.change("Cluster", "taker", named(&Value::Null)).await?;
    stage.apply_cluster("giver", |_| ()).await?;
    claimed(stage, "giver", "EtcdCluster", "given").await?;
    stage.change("Cluster", "giver", named(&Value::Null)).await?;
    stage.change("Cluster", "taker", named(&json!("given"))).await?;
    stage.until_says("taker", "False EtcdBelongsToAnotherCluster").await?;
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "taker"}}});
    stage.change("EtcdCluster", "given", label).await?;
    stage.delete("Cluster", "giver").await?;
    let says = "False EtcdBelongsToAnotherCluster EtcdCluster given has Machines of this Cluster";
    stage.until_says("giver", says).await?;
    ensure!(!is_deleting(stage, "EtcdCluster", "given").await?, "etcd is deleted, although another Cluster names it");
    stage.change("Cluster", "taker", named(&Value::Null)).await?;
    stage.until_gone("giver").await?;

    // The same in a deletion that has begun: the giver names the etcd still, and waits for a worker.
    stage.apply_cluster("giver", |_| ()).await?;
    claimed(stage, "giver", "EtcdCluster", "kept").await?;
    let mut worker = machine("giver-worker-0", &[]);
    worker["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "giver"});
    worker["spec"]["clusterName"] = json!("giver");
    stage.apply(worker).await?;
    until_adopted(stage, "giver-worker-0").await?;
    stage.delete("Cluster", "giver").await?;
    stage.until_says("giver", "False WaitingForWorkersDeletion").await?;
    stage.change("Cluster", "taker", named(&json!("kept"))).await?;
    stage.until_says("taker", "False EtcdBelongsToAnotherCluster").await?;
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "taker"}}});
    stage.change("EtcdCluster", "kept", label).await?;
    let_go(stage, "giver-worker-0").await?;
    let says = "False EtcdBelongsToAnotherCluster EtcdCluster kept has Machines of this Cluster";
    stage.until_says("giver", says).await?;
    ensure!(!is_deleting(stage, "EtcdCluster", "kept").await?, "etcd is deleted, although another Cluster names it");
    stage.change("Cluster", "taker", named(&Value::Null)).await?;
    stage.until_gone("giver").await?;
    stage.delete("Cluster", "taker").await?;
    stage.until_gone("taker").await?;

    // Etcd objects that the Cluster no longer names, while it names another one: that one is deleted first.
    stage.apply_cluster("switched", |_| ()).await?;
    claimed(stage, "switched", "OtherEtcd", "switched-first").await?;
    claimed(stage, "switched", "EtcdCluster", "switched-second").await?;
    stage.change("Cluster", "switched", named(&json!("OtherEtcd.example.org/switched-etcd"))).await?;
    stage.apply_etcd("switched").await?;
    stage.until_says("switched", "False WaitingForEtcd OtherEtcd switched-etcd").await?;
    stage.delete("Cluster", "switched").await?;
    stage.until_gone("switched").await?;
    for kind in ["EtcdCluster", "OtherEtcd", "Machine"] {
        let left = stage.api(kind).list(&ListParams::default()).await?;
        ensure!(
            left.items.is_empty(),
            "{kind} {:?} is left",
            left.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
        );
    }

    // The hook is away when the deletion begins, and comes back.
    stage.apply_cluster("away", |_| ()).await?;
    stage.apply_etcd("away").await?;
    stage.until_control_plane("away", true, &[PLACEHOLDER]).await?;
    stage.until_says("away", "False WaitingForEtcd").await?;
    stage.kill_hook(0);
    stage.delete("Cluster", "away").await?;
    stage.start_hook(0).await?;
    stage.until_gone("away").await
}

fn machine(name: &str, owners: &[Value]) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": name, "finalizers": [HOLD], "ownerReferences": owners,
            "labels": {"cluster.x-k8s.io/cluster-name": "demo"}},
        "spec": {"clusterName": "demo", "version": "v1.36.3", "bootstrap": {"dataSecretName": "none"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachine", "name": name}},
    })
}

/// A Machine of an etcd member. It has no owner, and waits for etcd's controller.
fn member(cluster: &str, name: &str) -> Value {
    let mut machine = machine(name, &[]);
    machine["metadata"]["finalizers"] = json!([]);
    machine["metadata"]["labels"] =
        json!({"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/etcd-cluster": format!("{cluster}-etcd")});
    machine["metadata"]["annotations"] =
        json!({"pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd-member": "etcd-cluster-controller"});
    machine["spec"]["clusterName"] = json!(cluster);
    machine
}

/// Waits until Cluster API has made the Cluster the owner of a Machine that had none.
async fn until_adopted(stage: &Stage, machine: &str) -> Result<()> {
    until("Cluster API has adopted the Machine", SOON, async || {
        let machine = stage.api("Machine").get(machine).await?;
        Ok(machine.owner_references().iter().any(|owner| owner.kind == "Cluster").then_some(()))
    })
    .await
}

/// Makes another field manager an owner of the hook's condition too, as happens when a Cluster is restored.
async fn owned_twice(stage: &Stage, cluster: &str) -> Result<()> {
    let object = stage.api("Cluster").get(cluster).await?;
    let conditions = object.data["status"]["conditions"].as_array().context("it has no conditions")?;
    let ours: Vec<&Value> = conditions.iter().filter(|one| one["type"] == "ManagedExternalEtcdReady").collect();
    ensure!(ours.len() == 1, "{conditions:?}");
    let body = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": cluster},
        "status": {"conditions": ours}});
    let parameters = PatchParams::apply("restore").force();
    stage.api("Cluster").patch_status(cluster, &parameters, &Patch::Apply(&body)).await?;
    Ok(())
}

/// A patch that makes a Cluster name an etcd, or none.
fn named(etcd: &Value) -> Value {
    json!({"metadata": {"annotations": {"etcdcluster.cluster.x-k8s.io/managed-external-etcd": etcd}}})
}

/// Makes an etcd with a Machine. The Cluster names it and has claimed it.
async fn claimed(stage: &Stage, cluster: &str, kind: &str, name: &str) -> Result<()> {
    let api_version = if kind == "EtcdCluster" { "etcdcluster.cluster.x-k8s.io/v1beta1" } else { "example.org/v1" };
    let (group, _) = api_version.split_once('/').context("a group")?;
    let template = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": name});
    let spec = json!({"replicas": 1, "infrastructureTemplate": template});
    stage.change("Cluster", cluster, named(&json!(format!("{kind}.{group}/{name}")))).await?;
    stage.apply(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})).await?;
    let owned = until(format!("{kind} {name} is claimed"), SOON, async || {
        let etcd = stage.api(kind).get(name).await?;
        Ok(etcd.owner_references().iter().any(|owner| owner.kind == "Cluster").then_some(etcd))
    })
    .await?;
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": owned.uid(), "controller": true});
    let mut machine = machine(&format!("{name}-0"), &[owner]);
    machine["metadata"]["finalizers"] = json!([]);
    machine["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] = json!(cluster);
    machine["spec"]["clusterName"] = json!(cluster);
    stage.apply(machine).await
}

async fn is_deleting(stage: &Stage, kind: &str, name: &str) -> Result<bool> {
    let object = stage.api(kind).get_opt(name).await?;
    Ok(object.with_context(|| format!("{kind} {name} is gone"))?.metadata.deletion_timestamp.is_some())
}

/// Waits until a Machine is being deleted, and removes its finalizer.
async fn let_go(stage: &Stage, name: &str) -> Result<()> {
    until(format!("{name} is being deleted"), SOON, async || {
        let machine = stage.api("Machine").get(name).await?;
        ensure!(machine.metadata.deletion_timestamp.is_some());
        let finalizers: Vec<_> = machine.finalizers().iter().filter(|finalizer| *finalizer != HOLD).collect();
        let body = json!({"metadata": {"finalizers": finalizers, "resourceVersion": machine.resource_version()}});
        stage.api("Machine").patch(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
        Ok(Some(()))
    })
    .await
}
