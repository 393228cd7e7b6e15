//! From one apply to an unpaused control plane.

use crate::records::warnings;
use anyhow::{Context, Result, ensure};
use api::conditions::MACHINE_UP_TO_DATE;
use api::names;
use e2e::apply::apply_object;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::plane::workload::WorkloadApiServer;
use e2e::plane::{Request, Requests, users};
use futures::future::try_join_all;
use futures::try_join;
use kube::Client;
use kube::api::DynamicObject;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a cluster may take here, on a busy computer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The main path: three members come up as voters, the control plane gets endpoints and certificates, and only then
/// makes its first Machine. An API server that has nothing but what was published works.
pub(crate) async fn three_members(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "three").await?;
    let manifests = Manifests::new("three", "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    let before = bed.plane.mark();
    manifests.apply(&client).await?;

    let status = handle.until_ready(PATIENCE).await?;
    ensure!(status.members.len() == 3 && status.ready_replicas == 3, "{:?}", status.members);
    released(&handle).await?;
    bed.exactly(&[(&handle, 3)]).await?;
    machines_match(&handle).await?;
    let requests = bed.plane.requests_since(before)?;
    gate_was_kept(&handle, &requests)?;
    a_move_waits_from_the_first_machine_on(&handle, &requests)?;

    let server = WorkloadApiServer::start(bed.world(), &handle.etcd_access().await?).await?;
    bed.observe_api_server(&format!("{}/{}", handle.namespace, handle.cluster), &server);
    server.store_an_object().await
}

/// Checks that every Machine reports that it matches the spec. Cluster API expects the owner of Machines to set this
/// condition.
async fn machines_match(handle: &ClusterHandle) -> Result<()> {
    for name in handle.etcd_machines().await? {
        let machine = handle.api("Machine").get(&name).await?;
        ensure!(up_to_date(&machine) == Some("True"), "{name}: {:?}", machine.data.pointer("/status/conditions"));
    }
    Ok(())
}

/// Status of the condition that says whether a Machine matches the spec.
pub(crate) fn up_to_date(machine: &DynamicObject) -> Option<&str> {
    let conditions = machine.data.pointer("/status/conditions").and_then(|conditions| conditions.as_array());
    let shown = conditions.into_iter().flatten().find(|condition| condition["type"] == MACHINE_UP_TO_DATE);
    shown.and_then(|condition| condition["status"].as_str())
}

/// One member and five, side by side in one namespace.
pub(crate) async fn one_and_five_members(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "sizes").await?;
    let one = Manifests::new("sizes", "one")?.replicas(1);
    let five = Manifests::new("sizes", "five")?.replicas(5);
    try_join!(one.apply(&client), five.apply(&client))?;

    let (one, five) = (ClusterHandle::new(&client, &one), ClusterHandle::new(&client, &five));
    try_join!(one.until_ready(PATIENCE), five.until_ready(PATIENCE))?;
    try_join!(released(&one), released(&five))?;
    bed.exactly(&[(&one, 1), (&five, 5)]).await?;
    strangers(&[&one, &five]).await
}

/// The same names in a second namespace are another cluster.
pub(crate) async fn same_names_in_two_namespaces(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    let manifests = [Manifests::new("here", "demo")?.replicas(1), Manifests::new("there", "demo")?.replicas(3)];
    let looks = manifests.each_ref().map(|manifests| ClusterHandle::new(&client, manifests));
    for handle in &looks {
        ClusterHandle::make_namespace(&client, &handle.namespace).await?;
    }
    try_join_all(manifests.iter().map(|manifests| manifests.apply(&client))).await?;

    try_join_all(looks.iter().map(|handle| handle.until_ready(PATIENCE))).await?;
    try_join_all(looks.iter().map(released)).await?;
    bed.exactly(&[(&looks[0], 1)]).await?;
    bed.exactly(&[(&looks[1], 3)]).await?;
    strangers(&[&looks[0], &looks[1]]).await
}

/// Whichever document comes first, the controllers wait for the others and report which is missing. The document of the
/// managed-external-etcd proposal is valid too.
pub(crate) async fn documents_in_any_order(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "orders").await?;
    let looks = try_join!(
        etcd_first(&client),
        cluster_first(&client),
        template_last(&client),
        template_a_moment_later(&client),
        backwards(&client),
        the_proposals_document(&client)
    );
    let looks = <[ClusterHandle; 6]>::from(looks?);
    try_join_all(looks.iter().map(|handle| handle.until_ready(PATIENCE))).await?;
    try_join_all(looks.iter().map(released)).await?;
    let clusters: Vec<(&ClusterHandle, usize)> = looks.iter().map(|handle| (handle, 1)).collect();
    bed.exactly(&clusters).await?;
    let told = warnings(&client, "orders").await?;
    let is_missed = |name: &str| {
        told.iter()
            .any(|text| text.contains("InfrastructureTemplateNotFound") && text.contains(&format!("{name}-etcd:")))
    };
    ensure!(is_missed("template-last") && !is_missed("a-moment-later"), "it was told: {told:#?}");
    Ok(())
}

async fn etcd_first(client: &Client) -> Result<ClusterHandle> {
    let manifests = Manifests::new("orders", "etcd-first")?.replicas(1);
    let handle = ClusterHandle::new(client, &manifests);
    apply_kinds(client, &manifests, &["EtcdCluster"]).await?;
    let message = handle.until_condition("Ready", "False", "WaitingForCluster", PATIENCE).await?;
    ensure!(message.contains("managed-external-etcd: etcd-first-etcd"), "what would help is said: {message}");
    manifests.apply(client).await?;
    Ok(handle)
}

async fn cluster_first(client: &Client) -> Result<ClusterHandle> {
    let manifests = Manifests::new("orders", "cluster-first")?.replicas(1);
    apply_kinds(client, &manifests, &["Cluster"]).await?;
    let handle = ClusterHandle::new(client, &manifests);
    let message = handle.until_cluster_condition("ManagedExternalEtcdReady", "False", "EtcdNotFound", PATIENCE).await?;
    ensure!(message.contains("cluster-first-etcd"), "what is missing is named: {message}");
    apply_kinds(client, &manifests, &["KubeadmControlPlane", "LocalCluster", "LocalMachineTemplate"]).await?;
    apply_kinds(client, &manifests, &["EtcdCluster"]).await?;
    Ok(handle)
}

async fn template_last(client: &Client) -> Result<ClusterHandle> {
    let manifests = Manifests::new("orders", "template-last")?.replicas(1);
    let handle = ClusterHandle::new(client, &manifests);
    apply_kinds(client, &manifests, &["Cluster", "LocalCluster", "EtcdCluster", "KubeadmControlPlane"]).await?;
    let message = handle.until_condition("Ready", "False", "InfrastructureTemplateNotFound", PATIENCE).await?;
    ensure!(message.contains("LocalMachineTemplate template-last-etcd"), "what is missing is named: {message}");
    apply_kinds(client, &manifests, &["LocalMachineTemplate"]).await?;
    Ok(handle)
}

/// As in the examples, one document after the other, from a client whose requests take their time.
async fn template_a_moment_later(client: &Client) -> Result<ClusterHandle> {
    let manifests = Manifests::new("orders", "a-moment-later")?.replicas(1);
    let handle = ClusterHandle::new(client, &manifests);
    apply_kinds(client, &manifests, &["Cluster", "LocalCluster", "EtcdCluster"]).await?;
    let message = handle.until_condition("Ready", "False", "WaitingForInfrastructureTemplate", PATIENCE).await?;
    ensure!(message.contains("LocalMachineTemplate a-moment-later-etcd"), "what is missing is named: {message}");
    apply_kinds(client, &manifests, &["LocalMachineTemplate", "KubeadmControlPlane"]).await?;
    Ok(handle)
}

async fn backwards(client: &Client) -> Result<ClusterHandle> {
    let manifests = Manifests::new("orders", "backwards")?.replicas(1);
    for document in manifests.documents().iter().rev() {
        apply_object(client, document).await?;
    }
    Ok(ClusterHandle::new(client, &manifests))
}

async fn the_proposals_document(client: &Client) -> Result<ClusterHandle> {
    let manifests = Manifests::new("orders", "proposal")?.replicas(1).with("EtcdCluster", |etcd| {
        etcd["apiVersion"] = json!("etcdcluster.cluster.x-k8s.io/v1alpha4");
        etcd["spec"]["infrastructureTemplate"] = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "LocalMachineTemplate",
            "name": "proposal-etcd",
            "namespace": "orders",
        });
    });
    manifests.apply(client).await?;
    Ok(ClusterHandle::new(client, &manifests))
}

async fn apply_kinds(client: &Client, manifests: &Manifests, kinds: &[&str]) -> Result<()> {
    for kind in kinds {
        for document in manifests.documents().iter().filter(|document| document["kind"] == *kind) {
            apply_object(client, document).await?;
        }
    }
    Ok(())
}

/// Checks that the control plane is released: its endpoints are those of etcd's status, it is not paused, and the data
/// of its first Machine contain the endpoints, the CA and the client certificate.
pub(crate) async fn released(handle: &ClusterHandle) -> Result<()> {
    let data = handle.until_control_plane_data(PATIENCE).await?;
    let status = handle.status().await?;
    let endpoints: Vec<String> = status.endpoints.split(',').map(str::to_owned).collect();
    let published = handle.control_plane_endpoints().await?;
    ensure!(published == endpoints, "the control plane has {published:?}, the status {endpoints:?}");
    ensure!(!handle.control_plane_is_paused().await?, "the control plane is still paused");
    for endpoint in &endpoints {
        ensure!(data.contains(endpoint.as_str()), "{endpoint} is not in the first Machine's bootstrap data");
    }
    let (ca, client) = (format!("{}-etcd", handle.cluster), format!("{}-apiserver-etcd-client", handle.cluster));
    for (secret, key) in [(&ca, "tls.crt"), (&client, "tls.crt"), (&client, "tls.key")] {
        let value = handle.secret(secret, key).await?;
        let line = value.lines().nth(1).with_context(|| format!("{key} of {secret} is not PEM: {value}"))?;
        ensure!(data.contains(line), "{key} of {secret} is not in the first Machine's bootstrap data");
    }
    Ok(())
}

/// Checks in the audit log that the endpoints were written, then the client Secret was made, and only then the control
/// plane made a Machine.
fn gate_was_kept(handle: &ClusterHandle, requests: &Requests) -> Result<()> {
    let done = requests.done_in(&handle.namespace);
    let ours = done.user(users::PROVIDER);
    let secret = format!("{}-apiserver-etcd-client", handle.cluster);
    let secrets = ours.verb("create").resource("secrets").filter(|request| request.name == secret);
    let published = secrets.iter().next().with_context(|| format!("nobody of us made Secret {secret}:\n{ours}"))?;
    let patches = ours.verb("patch").resource("kubeadmcontrolplanes");
    let written = patches.filter(|patch| patch.body.pointer("/spec/kubeadmConfigSpec").is_some());
    ensure!(written.len() == 1, "endpoints were written {} times:\n{patches:?}", written.len());
    let endpoints = written.iter().next().context("no patch")?;
    ensure!(
        endpoints.received < published.received,
        "the client Secret was made at {}, the endpoints were written at {}",
        published.received,
        endpoints.received
    );
    let theirs = done.user(users::CAPI_CONTROL_PLANE).resource("machines").filter(|r| r.code == 201);
    let first = theirs.iter().next().context("the control plane has made no Machine")?;
    ensure!(
        published.received < first.received,
        "the client Secret was made at {}, the control plane's first Machine at {}",
        published.received,
        first.received
    );
    Ok(())
}

/// Checks that one request writes both the first number of a Machine and the annotation for which `clusterctl move`
/// waits.
fn a_move_waits_from_the_first_machine_on(handle: &ClusterHandle, requests: &Requests) -> Result<()> {
    let patches = requests.done_in(&handle.namespace).user(users::PROVIDER).verb("patch").resource("etcdclusters");
    let done: Vec<_> = patches.iter().filter(|patch| patch.code == 200).collect();
    let annotation = |patch: &Request, name: &str| patch.body.pointer("/metadata/annotations")?.get(name).cloned();
    let waits = |patch: &Request| annotation(patch, names::BLOCK_MOVE_ANNOTATION) == Some(json!("true"));
    let first = done.iter().find(|patch| annotation(patch, names::LAST_NAME_NUMBER_ANNOTATION).is_some());
    let first = first.context("no number was written")?;
    ensure!(waits(first), "a move did not wait from {} on:\n{patches:?}", first.received);
    ensure!(done.iter().filter(|patch| waits(patch)).count() == 1, "it is set once:\n{patches:?}");
    Ok(())
}

/// Checks that the clusters share nothing: no endpoint, no CA, no certificate, no key and no cluster ID.
async fn strangers(looks: &[&ClusterHandle; 2]) -> Result<()> {
    let [one, other] = try_join!(traits(looks[0]), traits(looks[1])).map(<[_; 2]>::from)?;
    let shared: Vec<_> = one.intersection(&other).collect();
    ensure!(shared.is_empty(), "the clusters share {shared:?}");
    Ok(())
}

async fn traits(handle: &ClusterHandle) -> Result<BTreeSet<String>> {
    let status = handle.status().await?;
    let access = handle.etcd_access().await?;
    Ok(access.endpoints.into_iter().chain([access.ca, access.certificate, access.key, status.cluster_id]).collect())
}
