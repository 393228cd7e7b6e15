use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use controller_support::external::secret_text;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::stage::{HOOKS, PLACEHOLDER, SOON, Stage, crd};

const ONE: &str = "https://10.0.0.1:2379";
const TWO: &str = "https://10.0.0.2:2379";
/// How many times a hook is killed at most before it has handed over.
const LONGEST_LIFE: u64 = 40;

pub(crate) async fn hands_over(stage: &mut Stage) -> Result<()> {
    // The first cluster pays for the watches: the cost of starting the hook is not the cost of a cluster.
    stage.apply_cluster("first", |_| ()).await?;
    stage.apply_etcd("first").await?;
    stage.until_says("first", "False WaitingForEtcd").await?;
    stage.until_control_plane("first", true, &[PLACEHOLDER]).await?;

    let mark = stage.plane.mark();
    stage.apply_cluster("demo", |_| ()).await?;
    stage.until_says("demo", "False EtcdNotFound").await?;
    stage.until_control_plane("demo", true, &[PLACEHOLDER]).await?;
    stage.apply_etcd("demo").await?;
    stage.until_says("demo", "False WaitingForEtcd OtherEtcd demo-etcd is not ready").await?;
    for healthy in 0..20 {
        stage.report("demo", false, "", &format!("{healthy} of 20 members")).await?;
    }
    stage.make_secret("demo", "etcd", true, "ca").await?;
    stage.make_secret("demo", "managed-etcd-apiserver-client", true, "client").await?;
    ensure!(stage.control_plane_machines("demo").await? == 0, "a Machine before etcd is ready");
    ensure!(stage.secret("demo-apiserver-etcd-client", "tls.crt").await?.is_none(), "the gate is open");
    stage.report("demo", true, &format!("{TWO},{ONE},{TWO}"), "").await?;
    stage.until_says("demo", "True Ready").await?;
    stage.until_control_plane("demo", false, &[ONE, TWO]).await?;
    let ours = stage.plane.requests_since(mark)?.user(HOOKS[0]);
    println!("one handover:\n{ours}");
    ensure!(ours.len() <= 22, "{ours}");

    let data = until("the first Machine has its data", SOON, async || {
        let selector = ListParams::default().labels("cluster.x-k8s.io/cluster-name=demo");
        let secrets = stage.api("Secret").list(&selector).await?;
        Ok(secrets.items.iter().filter(|s| s.name_any().starts_with("demo-cp-")).find_map(|s| secret_text(s, "value")))
    })
    .await?;
    for part in [ONE, TWO, "/etc/kubernetes/pki/etcd/ca.crt", "/etc/kubernetes/pki/apiserver-etcd-client.key"] {
        ensure!(data.contains(part), "{part} is not in {data}");
    }

    // What happens after the handover.
    stage.report("demo", false, TWO, "a member is away").await?;
    stage
        .until_says("demo", "False WaitingForEtcd OtherEtcd demo-etcd is not ready: ScalingUp: a member is away")
        .await?;
    stage.until_control_plane("demo", false, &[ONE, TWO]).await?;
    stage.pause("demo", Some("mine")).await?;
    stage.report("demo", true, TWO, "").await?;
    // The control plane's machine was started with both endpoints, and is not replaced while the control plane is
    // paused.
    stage.until_says("demo", "True ControlPlaneRollingOut etcd has been handed over; the control plane is paused by its user; KubeadmControlPlane demo-cp replaces its machines (it has not reported on them yet)").await?;
    stage.until_control_plane("demo", true, &[TWO]).await?;
    stage.until_in_use("demo", &[&[ONE, TWO], &[TWO]]).await?;
    stage.pause("demo", None).await?;
    stage.make_secret("demo", "managed-etcd-apiserver-client", true, "renewed").await?;
    until("the certificate is renewed", SOON, async || {
        Ok((stage.secret("demo-apiserver-etcd-client", "tls.key").await?.as_deref() == Some("renewed")).then_some(()))
    })
    .await?;
    stage.until_says("demo", "True ControlPlaneRollingOut KubeadmControlPlane demo-cp replaces its machines (").await?;
    stage.until_in_use("demo", &[&[ONE, TWO], &[TWO]]).await
}

/// A hook is killed again and again, and lives longer each time, until it has handed over. The kills have to come
/// before, between and after its writes. At any moment, the endpoints are written before the gate opens.
pub(crate) async fn killed_all_the_time(stage: &mut Stage) -> Result<()> {
    let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
    for life in 0..12_u64 {
        let name = format!("life-{life}");
        stage.kill_hook(0);
        stage.apply_cluster(&name, |_| ()).await?;
        stage.apply_etcd(&name).await?;
        stage.make_secret(&name, "etcd", true, "ca").await?;
        stage.make_secret(&name, "managed-etcd-apiserver-client", true, "client").await?;
        stage.report(&name, true, ONE, "").await?;
        // The hook's first list takes some 20 ms, and a whole handover some 100 ms more.
        for delay in 0..LONGEST_LIFE {
            stage.start_hook(0).await?;
            tokio::time::sleep(Duration::from_millis(20 + 7 * life % 11 + 11 * delay + delay * delay)).await;
            stage.kill_hook(0);
            let published = stage.secret(&format!("{name}-apiserver-etcd-client"), "tls.crt").await?.is_some();
            let control_plane = stage.control_plane(&name).await?;
            let written = control_plane.endpoints == [ONE];
            ensure!(!published || written, "the gate is open before the endpoints are written");
            // Nobody has paused it before the hook is there. With the placeholder alone it cannot begin.
            ensure!(control_plane.paused || published || !written, "it may begin before the gate is open");
            let state = match (written, published, control_plane.paused) {
                (false, ..) => "before the endpoints were written",
                (true, false, _) => "before the gate was open",
                (true, true, true) => "before the control plane was released",
                (true, true, false) => "when all was done",
            };
            *kills.entry(state).or_default() += 1;
            if written && published && !control_plane.paused {
                break;
            }
        }
        stage.start_hook(0).await?;
        stage.until_says(&name, "True Ready").await?;
        stage.until_control_plane(&name, false, &[ONE]).await?;
    }
    println!("  killed {kills:?}");
    let between = ["before the gate was open", "before the control plane was released"];
    ensure!(between.iter().any(|state| kills.contains_key(state)), "no kill came between two writes: {kills:?}");
    ensure!(kills.len() >= 3, "the kills came at the same moments: {kills:?}");
    Ok(())
}

pub(crate) async fn publishes_itself(stage: &mut Stage) -> Result<()> {
    stage.start_hook(1).await?;
    stage.apply_etcd("demo").await?;
    stage.apply_cluster("demo", |_| ()).await?;
    stage.make_secret("demo", "apiserver-etcd-client", false, "theirs").await?;
    stage.until_control_plane("demo", true, &[PLACEHOLDER]).await?;
    stage.report("demo", true, ONE, "").await?;
    stage.until_says("demo", "False WaitingForClientCertificate etcd's provider has not made Secret demo-etcd").await?;
    stage.until_control_plane("demo", true, &[ONE]).await?;
    stage.make_secret("demo", "etcd", false, "ca").await?;
    stage.until_says("demo", "True Ready").await?;
    stage.until_control_plane("demo", false, &[ONE]).await?;
    until("there is a Machine", SOON, async || Ok((stage.control_plane_machines("demo").await? > 0).then_some(())))
        .await?;
    ensure!(stage.secret("demo-apiserver-etcd-client", "tls.key").await?.as_deref() == Some("theirs"));
    Ok(())
}

pub(crate) async fn says_what_is_wrong(stage: &mut Stage) -> Result<()> {
    let names_etcd = |kind_and_name: &'static str| {
        move |document: &mut serde_json::Value| {
            if document["kind"] == "Cluster" {
                document["metadata"]["annotations"]["etcdcluster.cluster.x-k8s.io/managed-external-etcd"] =
                    json!(kind_and_name);
            }
        }
    };

    stage.apply_etcd("local").await?;
    stage
        .apply_cluster("local", |document| {
            if document["kind"] == "KubeadmControlPlane" {
                document["spec"]["kubeadmConfigSpec"] =
                    json!({"clusterConfiguration": {"certificateValidityPeriodDays": 100}});
            }
        })
        .await?;
    stage.until_says("local", "False ControlPlaneInvalid KubeadmControlPlane local-cp is made for local etcd").await?;
    ensure!(!stage.control_plane("local").await?.paused, "nothing is written to it");

    stage.apply_cluster("shares", names_etcd("OtherEtcd.example.org/local-etcd")).await?;
    stage
        .until_says("shares", "False EtcdBelongsToAnotherCluster OtherEtcd local-etcd belongs to Cluster local")
        .await?;

    stage.apply_cluster("unreadable", names_etcd("two words")).await?;
    stage.until_says("unreadable", "False EtcdKindInvalid annotation").await?;
    stage.until_control_plane("unreadable", true, &[PLACEHOLDER]).await?;
    let body = json!({"metadata": {"annotations": {"etcdcluster.cluster.x-k8s.io/managed-external-etcd": null}}});
    stage.api("Cluster").patch("unreadable", &PatchParams::default(), &Patch::Merge(&body)).await?;
    stage.until_control_plane("unreadable", false, &[PLACEHOLDER]).await?;
    until("nothing of ours is left", SOON, async || Ok(stage.says("unreadable").await?.is_none().then_some(())))
        .await?;

    stage.apply_cluster("late", names_etcd("LateEtcd.example.org/late-etcd")).await?;
    stage.until_says("late", "False EtcdKindInvalid kind LateEtcd.example.org does not exist").await?;
    stage.plane.apply_crds(&[crd("LateEtcd")]).await?;
    stage.until_says("late", "False EtcdNotFound").await?;
    stage
        .apply(json!({"apiVersion": "example.org/v1", "kind": "LateEtcd",
            "metadata": {"name": "late-etcd"}, "spec": {}}))
        .await?;
    stage.until_says("late", "False WaitingForEtcd").await
}
