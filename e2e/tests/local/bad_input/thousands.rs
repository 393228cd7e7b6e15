//! Thousands of generated documents, stored beside a cluster that is in use.

use crate::bring_up::{PATIENCE, released};
use crate::shrinks::{are_well, wanted};
use crate::upgrades::State;
use anyhow::{Context, Result, ensure};
use api::names::MANAGED_ETCD_ANNOTATION;
use e2e::bed::{Bed, ClusterHandle, Manifests, crds};
use e2e::malformed::{Generator, Malformed, originals, says_where};
use e2e::plane::{Mark, Requests, users};
use e2e::scenarios::seed;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use http::header::CONTENT_TYPE;
use http::request::Builder;
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

/// How many documents are made, and in how many waves they are sent.
const COUNT: usize = 10_000;
const WAVES: usize = 10;
/// How many requests are under way at a time.
const AT_ONCE: usize = 16;
/// One in this many documents is sent as a patch of a good object that is stored, to test the rules about changes too.
const PATCHES: usize = 3;
/// One in this many documents is sent in the earlier API version, if its kind has one.
const EARLIER: usize = 2;
/// The namespaces of the malformed documents and of the good cluster.
const NAMESPACE: &str = "bad-thousands";
const BESIDE: &str = "beside-thousands";
/// Time between two polls. Each of them reads all objects.
const LOOKS: Duration = Duration::from_secs(1);
/// How long nothing is written about the good cluster before the first wave. A status may stay unwritten for a moment,
/// so a shorter silence would prove nothing.
const CALM: Duration = Duration::from_secs(11);
/// The queue counts as empty when no reconcile has ended for this long.
const QUIET: Duration = Duration::from_secs(3);
/// The manager acts on a change of the good cluster within this time, whatever else it has to do.
const SOON: Duration = Duration::from_secs(10);

/// Our kinds, by API version and plural name as in URL paths.
const KINDS: [(&str, &str); 6] = [
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "localclusters"),
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "localmachines"),
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "localmachinetemplates"),
    ("bootstrap.cluster.x-k8s.io/v1beta1", "etcdadmconfigtemplates"),
    ("bootstrap.cluster.x-k8s.io/v1beta1", "etcdadmconfigs"),
    ("etcdcluster.cluster.x-k8s.io/v1beta1", "etcdclusters"),
];
/// The kinds of these whose status our manager writes.
const REPORTED: [&str; 2] = ["etcdadmconfigs", "etcdclusters"];
/// Keeps the API server from warning of each unknown field in a header of its own: with a hundred of them, the answer is
/// too large for the client. Fields that are unknown are dropped either way.
const NO_WARNINGS: &str = "fieldValidation=Ignore";
const CLUSTERS: (&str, &str) = ("cluster.x-k8s.io/v1beta2", "clusters");

/// The manager writes a status for each stored document of a kind that has one, and forgets the document when it is
/// gone. The manager goes on as the same process, no error is a bug of ours, nothing stays in the queue, and nothing is
/// written about the good cluster. When the good cluster is changed, beside the last wave, it grows.
pub(crate) async fn stored(bed: &mut Bed) -> Result<()> {
    let seed = seed()?;
    println!("  E2E_SEED={seed} repeats these documents");
    let client = bed.client();
    for namespace in [NAMESPACE, BESIDE] {
        ClusterHandle::make_namespace(&client, namespace).await?;
    }
    let manifests = Manifests::new(BESIDE, "demo")?.replicas(1);
    let good = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    good.until_ready(PATIENCE).await?;
    released(&good).await?;
    calm(bed).await?;
    let (process, bugs) = (bed.manager(0)?.pid().context("no manager runs")?, reconciles(bed, "internal").await?);
    let (before, mark) = (State::of(bed, &good).await?, bed.plane.mark());

    let mut generator = Generator::new(seed, &crds()?)?;
    let (mut made, mut total, mut patched) = (0, 0, 0);
    for wave in 1..=WAVES {
        let documents: Vec<Malformed> = generator.by_ref().take(COUNT / WAVES).collect();
        let accepted = store(&client, documents, made).await?;
        made += COUNT / WAVES;
        total += accepted.created + accepted.patched;
        patched += accepted.patched;
        handled(&client).await.with_context(|| format!("wave {wave}, E2E_SEED={seed}"))?;
        if wave == WAVES {
            let written = about_the_good(bed, mark)?;
            ensure!(written.is_empty(), "somebody has written about the good cluster:\n{written}");
            grows(bed, &good).await.context("the good cluster is changed beside the last wave")?;
        } else {
            let changed = before.changed(&State::of(bed, &good).await?);
            ensure!(changed.is_empty(), "the good cluster has changed: {changed:#?}");
        }
        clear(&client).await.with_context(|| format!("wave {wave} does not go, E2E_SEED={seed}"))?;
        drained(bed).await?;
        let manager = bed.manager(0)?;
        let is_the_same = manager.is_running()? && manager.pid() == Some(process);
        ensure!(is_the_same, "the manager has ended, E2E_SEED={seed}; see {}", manager.log().display());
        for log in [bed.manager(0)?.log().to_owned(), bed.local_infrastructure().log().to_owned()] {
            let text = std::fs::read_to_string(&log).with_context(|| format!("read {}", log.display()))?;
            ensure!(!text.contains("panicked"), "there was a panic, E2E_SEED={seed}; see {}", log.display());
        }
        let now = reconciles(bed, "internal").await?;
        ensure!(now == bugs, "{} reconciles have found a bug of ours, E2E_SEED={seed}", now - bugs);
        println!("  wave {wave}: {} were stored, and {} as patches", accepted.created, accepted.patched);
    }
    ensure!(total > COUNT / 10 && total < COUNT, "{total} of {COUNT} were stored: little was tried");
    let patches = COUNT / PATCHES;
    ensure!(patched > patches / 10 && patched < patches, "{patched} of {patches} patches were accepted");
    Ok(())
}

/// Waits until the manager has written everything about the bring-up of the good cluster.
async fn calm(bed: &Bed) -> Result<()> {
    until("nothing is written about the good cluster any more", PATIENCE, async || {
        let mark = bed.plane.mark();
        tokio::time::sleep(CALM).await;
        let written = about_the_good(bed, mark)?;
        ensure!(written.is_empty(), "{written}");
        Ok(Some(()))
    })
    .await
}

/// How many documents the API server has accepted.
#[derive(Default)]
struct Accepted {
    created: usize,
    patched: usize,
}

/// Sends the documents, and counts those that the API server accepts. Each EtcdCluster gets a Cluster that names it.
/// The Cluster's infrastructure never comes, so the EtcdCluster gets as far as it can without a machine.
async fn store(client: &Client, documents: Vec<Malformed>, number: usize) -> Result<Accepted> {
    // The good documents refer to this template.
    let template = json!({"apiVersion": KINDS[2].0, "kind": "LocalMachineTemplate", "metadata": {"name": "demo"},
        "spec": {"template": {"spec": {}}}});
    ensure!(is_created(client, KINDS[2], &template).await?, "the template is refused");
    let mut accepted = Accepted::default();
    let mut sent = stream::iter(documents.into_iter().zip(number..))
        .map(|(Malformed { document, changes }, number)| async move {
            store_one(client, document, number).await.with_context(|| format!("document {number}: {changes:?}"))
        })
        .buffer_unordered(AT_ONCE);
    while let Some(one) = sent.try_next().await? {
        accepted.created += one.created;
        accepted.patched += one.patched;
    }
    Ok(accepted)
}

async fn store_one(client: &Client, mut document: Value, number: usize) -> Result<Accepted> {
    let name = format!("malformed-{number}");
    // Any other name is part of what is malformed, so it stays.
    if document["metadata"]["name"] == "malformed" {
        document["metadata"]["name"] = json!(name);
    }
    let plural = format!("{}s", document["kind"].as_str().context("a kind")?.to_lowercase());
    let kind = KINDS.into_iter().find(|kind| kind.1 == plural).with_context(|| format!("what is {plural}?"))?;
    // Both created and patched objects are sent in both versions.
    let is_earlier = (number / PATCHES).is_multiple_of(EARLIER);
    let api_version = if is_earlier { kind.0.replace("/v1beta1", "/v1alpha4") } else { kind.0.to_owned() };
    document["apiVersion"] = json!(api_version);
    let kind = (api_version.as_str(), kind.1);
    if number.is_multiple_of(PATCHES) {
        let of_kind = |good: &Value| good["kind"] == document["kind"];
        let mut good: Vec<Value> = originals().into_iter().filter(of_kind).collect();
        let mut good = good.swap_remove(number % good.len());
        good["metadata"]["name"] = json!(name);
        good["apiVersion"] = json!(api_version);
        ensure!(is_created(client, kind, &good).await?, "it is good, and refused: {good}");
        have_it_named(client, &good).await?;
        let patched = usize::from(is_patched(client, kind, &name, &document).await?);
        return Ok(Accepted { created: 0, patched });
    }
    let created = is_created(client, kind, &document).await?;
    if created {
        have_it_named(client, &document).await?;
    }
    Ok(Accepted { created: usize::from(created), patched: 0 })
}

/// Creates a Cluster that names the object, if it is an EtcdCluster. Not every name of an EtcdCluster is valid for a
/// Cluster, so the Cluster may be refused.
async fn have_it_named(client: &Client, document: &Value) -> Result<()> {
    if document["kind"] != "EtcdCluster" {
        return Ok(());
    }
    let (name, group) = (&document["metadata"]["name"], "infrastructure.cluster.x-k8s.io");
    let cluster = json!({"apiVersion": CLUSTERS.0, "kind": "Cluster",
        "metadata": {"name": name, "annotations": {MANAGED_ETCD_ANNOTATION: name}},
        "spec": {"infrastructureRef": {"apiGroup": group, "kind": "LocalCluster", "name": name}}});
    is_created(client, CLUSTERS, &cluster).await?;
    Ok(())
}

/// Creates an object. Returns whether the API server has stored it.
async fn is_created(client: &Client, kind: (&str, &str), document: &Value) -> Result<bool> {
    let request = Request::post(format!("{}?{NO_WARNINGS}", path(kind))).header(CONTENT_TYPE, "application/json");
    is_accepted(client, request, document).await
}

/// Patches an object. Returns whether the API server has changed it as the document says.
async fn is_patched(client: &Client, kind: (&str, &str), name: &str, document: &Value) -> Result<bool> {
    let request = Request::patch(format!("{}/{name}?{NO_WARNINGS}", path(kind)));
    is_accepted(client, request.header(CONTENT_TYPE, "application/merge-patch+json"), document).await
}

/// Sends a request. A refusal by the API server is not an error if it names the field that is wrong.
async fn is_accepted(client: &Client, request: Builder, document: &Value) -> Result<bool> {
    match client.request::<Value>(request.body(serde_json::to_vec(document)?)?).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => {
            // Cluster API validates Clusters, so their refusals are not checked.
            let is_ours = document["kind"] != "Cluster";
            ensure!(!is_ours || says_where(&status), "refused without a path: {}", status.message);
            Ok(false)
        }
        // No field is at fault: the document is too large, or its name is taken.
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(false),
        // etcd, behind the API server, has refused it.
        Err(kube::Error::Api(status)) if status.message.contains("request is too large") => Ok(false),
        Err(error) => Err(error).with_context(|| format!("store {document}")),
    }
}

/// Waits until our manager has written a status for the current spec of each object.
async fn handled(client: &Client) -> Result<()> {
    until("each that is stored has a status", PATIENCE, async || {
        tokio::time::sleep(LOOKS).await;
        for kind in KINDS.into_iter().filter(|kind| REPORTED.contains(&kind.1)) {
            for object in list(client, kind).await? {
                let (wanted, seen) = (&object["metadata"]["generation"], &object["status"]["observedGeneration"]);
                let is_told = object["status"]["conditions"].as_array().is_some_and(|list| !list.is_empty());
                let name = &object["metadata"]["name"];
                ensure!(wanted == seen && is_told, "{} {name}: {}", kind.1, object["status"]);
            }
        }
        Ok(Some(()))
    })
    .await
}

/// Deletes everything that was stored, Clusters first, and waits until it is gone.
async fn clear(client: &Client) -> Result<()> {
    let all = || [CLUSTERS].into_iter().chain(KINDS);
    for kind in all() {
        let _: Value = client.request(Request::delete(path(kind)).body(Vec::new())?).await?;
    }
    until("all that was stored is gone", PATIENCE, async || {
        tokio::time::sleep(LOOKS).await;
        for kind in all() {
            let left = list(client, kind).await?;
            ensure!(left.is_empty(), "{} {} are left, such as {}", left.len(), kind.1, left[0]["metadata"]);
        }
        Ok(Some(()))
    })
    .await
}

/// Waits until nothing is reconciled any more.
async fn drained(bed: &Bed) -> Result<()> {
    until("nothing is left in the manager's queues", PATIENCE, async || {
        let before = reconciles(bed, "").await?;
        tokio::time::sleep(QUIET).await;
        let more = reconciles(bed, "").await? - before;
        ensure!(more == 0, "{more} reconciles in {} s", QUIET.as_secs());
        Ok(Some(()))
    })
    .await
}

/// How many reconciles of all controllers have ended so far with this result, or with any result if it is empty.
async fn reconciles(bed: &Bed, result: &str) -> Result<u64> {
    let text = bed.admin(0, "/metrics").await?;
    let wanted = format!("result=\"{result}");
    let lines = text.lines().filter(|line| line.starts_with("etcdadm_provider_reconciles_total{"));
    let (mut found, mut sum) = (0, 0);
    for line in lines {
        let (labels, count) = line.rsplit_once(' ').context("a metric has a value")?;
        found += 1;
        if labels.contains(&wanted) {
            sum += count.parse::<u64>().with_context(|| format!("read {line}"))?;
        }
    }
    ensure!(found > 0, "there is no count of reconciles:\n{text}");
    Ok(sum)
}

/// What our manager has written in the namespace of the good cluster.
fn about_the_good(bed: &Bed, since: Mark) -> Result<Requests> {
    let ours = bed.plane.requests_since(since)?.user(users::PROVIDER).writes();
    Ok(ours.filter(|request| request.namespace == BESIDE))
}

/// Grows the good cluster: its next Machines are made within `SOON`, and then there are three members.
async fn grows(bed: &Bed, good: &ClusterHandle) -> Result<()> {
    wanted(good, 3).await?;
    until("its Machines are made", SOON, async || {
        let machines = good.etcd_machines().await?;
        ensure!(machines.len() > 1, "there are {machines:?}");
        Ok(Some(()))
    })
    .await?;
    are_well(bed, good, 3).await.map(drop)
}

async fn list(client: &Client, kind: (&str, &str)) -> Result<Vec<Value>> {
    let mut answer: Value = client.request(Request::get(path(kind)).body(Vec::new())?).await?;
    match answer["items"].take() {
        Value::Array(items) => Ok(items),
        other => anyhow::bail!("{} are {other}", kind.1),
    }
}

fn path((api_version, plural): (&str, &str)) -> String {
    format!("/apis/{api_version}/namespaces/{NAMESPACE}/{plural}")
}
