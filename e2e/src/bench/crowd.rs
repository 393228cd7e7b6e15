//! What one reconcile costs beside many other objects, which should make no difference.

use super::{PATIENCE, table::Table};
use crate::apply::{FIELD_MANAGER, api_for};
use crate::bed::{Bed, ClusterHandle, Manifests};
use crate::until::until;
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The namespace of all objects, so that a search in a namespace goes through all of them.
const NAMESPACE: &str = "crowd";
/// How many clusters there are, including the one that is measured.
const SIZES: [usize; 3] = [10, 100, 1000];
/// How many times the spec is changed. Each change is a reconcile.
const CHANGES: u32 = 100;
/// How many clusters are made side by side.
const AT_ONCE: usize = 16;
/// How long the manager has to be idle before a measurement.
const CALM: Duration = Duration::from_secs(5);
/// How long it may take until all controllers have handled the objects: 1,000 clusters keep Cluster API's managers
/// busy.
const SETTLES: Duration = Duration::from_secs(900);
/// How much processor time the manager may use in [`CALM`] when it only probes members and resyncs paused objects. What
/// it uses when idle is subtracted from the cost of a change.
const IDLE: Duration = Duration::from_millis(400);
/// How much more a change may cost beside the largest number of clusters than beside the smallest.
const GROWTH: f64 = 1.2;

/// Measures one ready cluster of three members beside clusters that exist only as API objects: paused, without
/// machines.
pub(super) async fn measure(bed: &mut Bed, table: &mut Table) -> Result<Growth> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, NAMESPACE).await?;
    let manifests = Manifests::new(NAMESPACE, "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    handle.until_control_plane_data(PATIENCE).await?;
    let (mut there, mut costs) = (1, Vec::new());
    for size in SIZES {
        let begun = Instant::now();
        make(bed, there..size).await?;
        let made = begun.elapsed();
        there = size;
        calm(bed).await?;
        let settled = begun.elapsed();
        let cost = changes(bed, &handle).await?;
        eprintln!(
            "{size} clusters: {:.2} ms and {:.2} ms of processor time a change, {:.1} reconciles; made in {:.0} s, settled \
             after {:.0} s",
            cost.milliseconds,
            cost.processor,
            cost.reconciles,
            made.as_secs_f32(),
            settled.as_secs_f32()
        );
        let what = format!("one change beside {size} clusters: time in reconciles");
        table.row(&what, format!("{:.2} ms", cost.milliseconds), "", "");
        let what = format!("one change beside {size} clusters: processor time");
        table.row(&what, format!("{:.2} ms", cost.processor), "", "");
        costs.push(cost);
    }
    let (few, many) = (costs.first().context("nothing was measured")?, costs.last().context("nothing was measured")?);
    let growth = Growth::between(few, many);
    let goal = format!("≤ {GROWTH}");
    table.row("  ratio of time, most to fewest", format!("{:.2}", growth.milliseconds), &goal, "");
    table.row("  ratio of processor time", format!("{:.2}", growth.processor), &goal, "");
    super::remove(bed, &handle).await?;
    Ok(growth)
}

/// By which factor a change costs more beside the largest number of clusters than beside the smallest.
pub(super) struct Growth {
    milliseconds: f64,
    processor: f64,
}

impl Growth {
    fn between(few: &Cost, many: &Cost) -> Self {
        Self { milliseconds: many.milliseconds / few.milliseconds, processor: many.processor / few.processor }
    }

    /// Checks that a change hardly costs more because of the other clusters.
    ///
    /// # Errors
    /// When it does, or too little was measured to say.
    pub(super) fn check(&self) -> Result<()> {
        for (what, ratio) in [("time in reconciles", self.milliseconds), ("processor time", self.processor)] {
            // False if the ratio is not a number.
            let is_small = ratio <= GROWTH;
            let (fewest, most) = (SIZES[0], SIZES[SIZES.len() - 1]);
            ensure!(
                is_small,
                "beside {most} clusters a change takes {ratio:.2} times the {what} that it takes beside {fewest}, and \
                 not at most {GROWTH} times"
            );
        }
        Ok(())
    }
}

/// What a change costs, on average.
struct Cost {
    /// Time in reconciles of our etcd controller.
    milliseconds: f64,
    /// Processor time of the whole manager, without what it uses when idle.
    processor: f64,
    /// Reconciles of our etcd controller.
    reconciles: f64,
}

/// Makes changes that have no effect, one after the other, and waits for each.
async fn changes(bed: &mut Bed, handle: &ClusterHandle) -> Result<Cost> {
    let idle = processor_time(bed)?;
    tokio::time::sleep(CALM).await;
    let idle = (processor_time(bed)? - idle).as_secs_f64() / CALM.as_secs_f64();
    let (before, processor, begun) = (reconciles(bed).await?, processor_time(bed)?, Instant::now());
    for change in 0..CHANGES {
        let patch = Patch::Merge(json!({"spec": {"healthCheck": {"unhealthyAfterSeconds": 61 + change % 2}}}));
        let changed = handle.etcds().patch(&handle.etcd, &PatchParams::default(), &patch).await?;
        let generation = changed.metadata.generation;
        until(format!("generation {generation:?} of {} is seen", changed.name_any()), PATIENCE, async || {
            Ok((handle.status().await?.observed_generation >= generation).then_some(()))
        })
        .await?;
    }
    let took = begun.elapsed().as_secs_f64();
    let processor = (processor_time(bed)? - processor).as_secs_f64();
    let after = reconciles(bed).await?;
    let each = 1.0 / f64::from(CHANGES);
    Ok(Cost {
        milliseconds: (after.seconds - before.seconds) * 1e3 * each,
        processor: (processor - idle * took).max(0.0) * 1e3 * each,
        reconciles: (after.count - before.count) * each,
    })
}

/// Waits until the manager and Cluster API have handled what was made.
async fn calm(bed: &mut Bed) -> Result<()> {
    until("the manager is idle", SETTLES, async || {
        let (reconciled, used) = (reconciles(bed).await?, processor_time(bed)?);
        tokio::time::sleep(CALM).await;
        let used = processor_time(bed)? - used;
        let reconciled = reconciles(bed).await?.count - reconciled.count;
        ensure!(used <= IDLE, "{reconciled} reconciles and {used:?} of processor time in {CALM:?}");
        Ok(Some(()))
    })
    .await
}

/// The manager's counters of our etcd controller's reconciles.
struct Reconciles {
    seconds: f64,
    count: f64,
}

async fn reconciles(bed: &Bed) -> Result<Reconciles> {
    let metrics = bed.admin(0, "/metrics").await?;
    let value = |name: &str| {
        let prefix = format!("etcdadm_provider_reconcile_seconds_{name}{{controller=\"etcd-cluster-controller\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(prefix.as_str()));
        line.with_context(|| format!("no {prefix}"))?.parse::<f64>().with_context(|| format!("read {prefix}"))
    };
    Ok(Reconciles { seconds: value("sum")?, count: value("count")? })
}

/// Processor time of the manager so far.
pub(super) fn processor_time(bed: &mut Bed) -> Result<Duration> {
    let pid = bed.manager(0)?.pid().context("the manager has ended")?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read the manager's processor time")?;
    // Fields 14 and 15 of proc(5), in ticks of 10 ms. They come after the name, which is in parentheses.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<u64>().ok()).context("no ticks");
    Ok(Duration::from_millis(10) * u32::try_from(ticks(11)? + ticks(12)?)?)
}

/// Makes clusters as objects: each a Cluster, an EtcdCluster, and three Machines with bootstrap data.
async fn make(bed: &Bed, numbers: Range<usize>) -> Result<()> {
    let kinds = &Kinds::discover(&bed.client()).await?;
    stream::iter(numbers)
        .map(async |number| {
            let name = format!("other-{number}");
            let [cluster, etcd] = cluster(&name);
            apply(&kinds.clusters, &cluster).await?;
            let uid = apply(&kinds.etcd_clusters, &etcd).await?.uid().context("an EtcdCluster without UID")?;
            for member in 0..3 {
                let [secret, machine] = member_of(&name, &uid, member);
                apply(&kinds.secrets, &secret).await?;
                apply(&kinds.machines, &machine).await?;
            }
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// The APIs of the objects. They are discovered once, because discovering a kind costs more than making an object of
/// it.
struct Kinds {
    clusters: Api<DynamicObject>,
    etcd_clusters: Api<DynamicObject>,
    secrets: Api<DynamicObject>,
    machines: Api<DynamicObject>,
}

impl Kinds {
    async fn discover(client: &Client) -> Result<Self> {
        let of = async |object: &Value| anyhow::Ok(api_for(client, object).await?.0);
        let ([cluster, etcd], [secret, machine]) = (cluster("any"), member_of("any", "", 0));
        Ok(Self {
            clusters: of(&cluster).await?,
            etcd_clusters: of(&etcd).await?,
            secrets: of(&secret).await?,
            machines: of(&machine).await?,
        })
    }
}

async fn apply(api: &Api<DynamicObject>, object: &Value) -> Result<DynamicObject> {
    let name = object["metadata"]["name"].as_str().context("an object without a name")?;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object)).await.with_context(|| format!("apply {} {name}", object["kind"]))
}

fn cluster(name: &str) -> [Value; 2] {
    let group = "infrastructure.cluster.x-k8s.io";
    let etcd = format!("{name}-etcd");
    [
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"name": name, "namespace": NAMESPACE,
                         "annotations": {(api::names::MANAGED_ETCD_ANNOTATION): etcd}},
            "spec": {"paused": true, "infrastructureRef": {"apiGroup": group, "kind": "LocalCluster", "name": name}},
        }),
        json!({
            "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
            "metadata": {"name": etcd, "namespace": NAMESPACE},
            "spec": {"infrastructureTemplate": {"apiGroup": group, "kind": "LocalMachineTemplate", "name": etcd}},
        }),
    ]
}

fn member_of(cluster: &str, uid: &str, member: usize) -> [Value; 2] {
    let (etcd, name) = (format!("{cluster}-etcd"), format!("{cluster}-etcd-{member}"));
    let labels = json!({(api::names::CLUSTER_NAME_LABEL): cluster, (api::names::ETCD_CLUSTER_LABEL): etcd});
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    let mut owned = metadata.clone();
    owned["ownerReferences"] = json!([{
        "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster", "name": etcd, "uid": uid,
        "controller": true,
    }]);
    [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": api::names::CLUSTER_SECRET_TYPE,
               "stringData": {"value": "#cloud-config\n", "format": "cloud-config"}}),
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": owned, "spec": {
            "clusterName": cluster, "bootstrap": {"dataSecretName": name},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachine", "name": name}}}),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_grows_is_an_error() {
        let cost = |milliseconds, processor| Cost { milliseconds, processor, reconciles: 1.0 };
        let grows = |many: Cost| Growth::between(&cost(5.0, 10.0), &many).check().map_err(|error| error.to_string());
        assert_eq!(grows(cost(5.9, 11.9)), Ok(()));
        assert_eq!(grows(cost(4.0, 10.0)), Ok(()), "it may cost less");
        let told = grows(cost(6.5, 10.0)).unwrap_err();
        assert!(told.contains("beside 1000 clusters a change takes 1.30 times the time in reconciles"), "{told}");
        assert!(grows(cost(5.0, 13.0)).unwrap_err().contains("processor time"));
        let nothing = Growth::between(&cost(0.0, 0.0), &cost(0.0, 0.0));
        assert!(nothing.check().is_err(), "nothing was measured");
    }
}
