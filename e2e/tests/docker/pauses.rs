//! A user's own pause is respected throughout: on the Cluster, in its spec or as an annotation, and on the control
//! plane. Nothing is done to a paused object until the user lifts the pause, and then everything goes on.

use crate::clusters::{PATIENCE, change, container, documents, goes_on, granted, released, up, waiting_in_their_boot};
use anyhow::{Result, ensure};
use api::names;
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::DockerBed;
use e2e::plane::{Mark, Request, users};
use e2e::until::until;
use futures::future::try_join_all;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::time::Duration;

/// How long the scenario watches a pause.
const WATCHED: Duration = Duration::from_secs(10);
/// The hook records in this annotation which endpoints it has written to a control plane, in the same patch.
const WRITTEN_ENDPOINTS: &str = "etcdcluster.cluster.x-k8s.io/written-endpoints";
/// The value of a user's annotation.
const USERS: &str = "by-a-user";

/// The ways to pause.
#[derive(Clone, Copy)]
enum Way {
    /// `spec.paused` of the Cluster.
    Spec,
    /// The Cluster's annotation.
    Annotation,
    /// The annotation of the control plane.
    ControlPlane,
}

const WAYS: [(Way, &str); 3] =
    [(Way::Spec, "spec"), (Way::Annotation, "annotation"), (Way::ControlPlane, "control-plane")];

/// A user pauses before anything is applied.
pub(crate) async fn from_the_beginning(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "pause-first").await?;
    let clusters = WAYS.map(async |(way, name)| {
        let manifests = way.in_documents(documents("pause-first", &format!("first-{name}"), 1)?);
        let begun = bed.plane.mark();
        manifests.apply(&bed.client()).await?;
        let handle = ClusterHandle::new(&bed.client(), &manifests);
        way.keeps(bed, &handle, begun).await?;
        let machines = handle.etcd_machines().await?;
        ensure!(matches!(way, Way::ControlPlane) || machines.is_empty(), "{name}: etcd has Machines {machines:?}");
        way.lift(&handle).await?;
        released(&handle).await
    });
    try_join_all(clusters).await?;
    Ok(())
}

/// A user pauses while the first machine boots, and we have paused the control plane already.
pub(crate) async fn on_the_way_up(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "pause-early").await?;
    let clusters = WAYS.map(async |(way, name)| {
        let manifests = waiting_in_their_boot(documents("pause-early", &format!("early-{name}"), 1)?);
        manifests.apply(&bed.client()).await?;
        let handle = ClusterHandle::new(&bed.client(), &manifests);
        let machine = &handle.member_names(1)[0];
        container(bed, machine).await?;
        ensure!(!handle.status().await?.ready, "{name} is up already: nothing is shown");
        way.set(&handle).await?;
        let since = way.is_known(bed, &handle).await?;
        // If only the control plane is paused, etcd comes up meanwhile.
        let etcd_goes_on = matches!(way, Way::ControlPlane);
        if etcd_goes_on {
            goes_on(bed, machine).await?;
        }
        way.keeps(bed, &handle, since).await?;
        ensure!(etcd_goes_on || !handle.status().await?.ready, "{name} has become ready");
        goes_on(bed, machine).await?;
        way.lift(&handle).await?;
        released(&handle).await
    });
    try_join_all(clusters).await?;
    Ok(())
}

/// A user pauses when everything is up. Then more members are wanted.
pub(crate) async fn when_up(bed: &mut DockerBed) -> Result<()> {
    let bed = &*bed;
    ClusterHandle::make_namespace(&bed.client(), "pause-late").await?;
    let clusters = WAYS.map(async |(way, name)| {
        let handle = up(bed, "pause-late", &format!("late-{name}"), 1).await?;
        way.set(&handle).await?;
        let since = way.is_known(bed, &handle).await?;
        change(&handle, "EtcdCluster", &handle.etcd, &json!({"spec": {"replicas": 3}})).await?;
        let control_plane = handle.control_plane_machines().await?;
        way.keeps(bed, &handle, since).await?;
        match way {
            Way::Spec | Way::Annotation => {
                let machines = handle.etcd_machines().await?;
                ensure!(machines.len() == 1, "{name}: etcd has Machines {machines:?}");
            }
            // Etcd is not paused.
            Way::ControlPlane => {
                until("etcd has three members", PATIENCE, async || {
                    Ok((handle.status().await?.ready_replicas == 3).then_some(()))
                })
                .await?;
                let now = handle.control_plane_machines().await?;
                ensure!(now == control_plane, "{name}: the control plane has rolled from {control_plane:?} to {now:?}");
                way.untouched(&handle).await?;
            }
        }
        way.lift(&handle).await?;
        until(format!("{name} has three members, and the control plane knows them"), PATIENCE, async || {
            let (status, endpoints) = (handle.status().await?, handle.control_plane_endpoints().await?);
            ensure!(status.ready && endpoints.len() == 3, "{endpoints:?}, {:?}", status.members);
            Ok(Some(()))
        })
        .await
    });
    try_join_all(clusters).await?;
    Ok(())
}

impl Way {
    fn in_documents(self, manifests: Manifests) -> Manifests {
        let (kind, patch) = self.patch(true);
        manifests.with(kind, |document| match self {
            Way::Spec => document["spec"]["paused"] = patch["spec"]["paused"].clone(),
            Way::Annotation | Way::ControlPlane => {
                let annotations = &patch["metadata"]["annotations"];
                document["metadata"]["annotations"][names::PAUSED_ANNOTATION] =
                    annotations[names::PAUSED_ANNOTATION].clone();
            }
        })
    }

    fn patch(self, paused: bool) -> (&'static str, Value) {
        let annotation = json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: paused.then_some(USERS)}}});
        match self {
            Way::Spec => ("Cluster", json!({"spec": {"paused": paused}})),
            Way::Annotation => ("Cluster", annotation),
            Way::ControlPlane => ("KubeadmControlPlane", annotation),
        }
    }

    async fn set(self, handle: &ClusterHandle) -> Result<()> {
        let (kind, patch) = self.patch(true);
        change(handle, kind, self.object(handle), &patch).await
    }

    async fn lift(self, handle: &ClusterHandle) -> Result<()> {
        let (kind, patch) = self.patch(false);
        change(handle, kind, self.object(handle), &patch).await
    }

    fn object(self, handle: &ClusterHandle) -> &str {
        match self {
            Way::Spec | Way::Annotation => &handle.cluster,
            Way::ControlPlane => &handle.control_plane,
        }
    }

    /// Waits until we know of the pause. Writes that were on their way before may still arrive until then.
    async fn is_known(self, bed: &DockerBed, handle: &ClusterHandle) -> Result<Mark> {
        match self {
            Way::Spec | Way::Annotation => {
                handle.until_condition("Paused", "True", "Paused", PATIENCE).await?;
            }
            // The value shows from the first write on that the pause is the user's.
            Way::ControlPlane => {}
        }
        Ok(bed.plane.mark())
    }

    /// Watches the pause for a while. The pause stays, and according to the API server's audit log, we write nothing to
    /// what is paused. A paused control plane is an exception: we write the endpoints that it will need when its user
    /// lifts the pause, with the annotation that records them, and report in its status what is waited for.
    async fn keeps(self, bed: &DockerBed, handle: &ClusterHandle, since: Mark) -> Result<()> {
        match self {
            Way::Spec | Way::Annotation => {
                handle.until_condition("Paused", "True", "Paused", PATIENCE).await.map(drop)?
            }
            Way::ControlPlane => {
                let wanted = "etcd has been handed over; the control plane is paused by its user";
                until("the Cluster says that the control plane is paused by its user", PATIENCE, async || {
                    let said = handle.cluster_condition("ManagedExternalEtcdReady").await?;
                    let right = said["status"] == "True" && said["reason"] == "Ready" && said["message"] == wanted;
                    ensure!(right, "it says {said}");
                    Ok(Some(()))
                })
                .await?;
            }
        }
        // This time is what the scenario is about.
        tokio::time::sleep(WATCHED).await;
        self.untouched(handle).await?;
        let ours = granted(&bed.plane.requests_since(since)?, handle, users::PROVIDER).writes();
        let to_the_paused = ours.filter(|request| self.concerns(request, handle));
        let written: Vec<_> = to_the_paused.iter().map(|r| (&r.verb, &r.resource, &r.subresource, &r.name)).collect();
        ensure!(written.is_empty(), "written in spite of the pause: {written:?}");
        Ok(())
    }

    /// Whether a write of ours should not have been made. An EtcdCluster's report in its own status that it is paused
    /// does not count.
    fn concerns(self, request: &Request, handle: &ClusterHandle) -> bool {
        match self {
            Way::Spec | Way::Annotation => {
                let own = request.resource == "etcdclusters" && request.subresource == "status";
                !own && request.group != "events.k8s.io"
            }
            Way::ControlPlane => {
                let endpoints = request.body.pointer("/spec/kubeadmConfigSpec/clusterConfiguration/etcd").is_some();
                let annotations = request.body.pointer("/metadata/annotations").and_then(Value::as_object);
                let others = annotations.is_some_and(|all| all.keys().any(|name| name != WRITTEN_ENDPOINTS));
                let told = request.subresource == "status";
                request.name == handle.control_plane && (others || !(endpoints || told))
            }
        }
    }

    /// The pause is still as its user has set it.
    async fn untouched(self, handle: &ClusterHandle) -> Result<()> {
        let (kind, wanted) = self.patch(true);
        let object = handle.api(kind).get(self.object(handle)).await?;
        let paused = match self {
            Way::Spec => object.data["spec"]["paused"] == wanted["spec"]["paused"],
            Way::Annotation | Way::ControlPlane => {
                object.annotations().get(names::PAUSED_ANNOTATION).map(String::as_str) == Some(USERS)
            }
        };
        ensure!(paused, "{kind} {} is not as its user has paused it: {:?}", self.object(handle), object.metadata);
        Ok(())
    }
}
