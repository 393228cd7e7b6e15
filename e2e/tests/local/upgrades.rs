//! An upgrade of this project from an earlier state, with a cluster that is in use: no Machine changes.

use crate::bring_up::{PATIENCE, released};
use crate::clusterctl::FIRST_RELEASE;
use crate::rbac::install;
use crate::records::warnings;
use crate::rolls::{nothing_is_lost, up_to_date};
use crate::scale::{LOAD, data_of};
use crate::shrinks::{are_well, wanted};
use anyhow::{Result, ensure};
use e2e::bed::data::said;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::History;
use e2e::plane::users;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::ListParams;
use std::collections::BTreeMap;
use std::time::Duration;

/// The last commit before the kubectl plugin, releases and clusterctl's contract.
const BEFORE: &str = "eec8fae3baa037cf878f976aa1f723cf9cc5dec1";
/// How long clients write before the upgrade, and after the last change.
const WRITES: Duration = Duration::from_secs(3);
/// How long the new manager is watched while it has nothing to do: three rounds of health checks, one every 10 s, and
/// the moment for which a status may be left unwritten.
pub(crate) const WATCHED: Duration = Duration::from_secs(35);
/// How many members there are in the end.
const MORE: usize = 5;

/// The earlier commit whose bed a scenario starts on, if it starts on one.
pub(crate) fn begins_at(scenario: &str) -> Option<&'static str> {
    match scenario {
        "upgrades::from_before" => Some(BEFORE),
        "clusterctl::from_the_first_release" => Some(FIRST_RELEASE),
        _ => None,
    }
}

/// Clients write all along to three members of the earlier state, which a control plane uses. The new manifests are
/// applied, the new manager waits for the lease, and the earlier manager ends. No Machine changes, no etcd process is
/// restarted, nothing rolls out, and there is no new warning. The machines still have the earlier image when two more
/// members are added.
pub(crate) async fn from_before(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "upgrade").await?;
    let manifests = Manifests::new("upgrade", "demo")?;
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    tokio::time::sleep(WRITES).await;
    let (machines, endpoints) = (handle.etcd_machines().await?, handle.status().await?.endpoints);
    let (before, told) = (State::of(bed, &handle).await?, warnings(&client, &handle.namespace).await?);

    install(bed, "default", &["--force-conflicts"]).await?;
    bed.start_manager_with_lease(1).await?;
    bed.end_manager(0).await?;
    let mark = bed.plane.mark();
    is_looked_at(&handle, machines.len()).await?;
    tokio::time::sleep(WATCHED).await;
    let changed = before.changed(&State::of(bed, &handle).await?);
    ensure!(changed.is_empty(), "the upgrade has changed {changed:#?}");
    let status = handle.status().await?;
    ensure!(status.ready && up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
    ensure!(status.endpoints == endpoints, "{} were published, and {endpoints} before", status.endpoints);
    let ours = bed.plane.requests_since(mark)?.user(users::PROVIDER).writes().done_in(&handle.namespace);
    println!("  the new manager has written:\n{ours}");
    let done = ours.filter(|request| request.verb != "patch" && request.resource != "events");
    ensure!(done.is_empty(), "the new manager has made or deleted something:\n{done}");
    ensure!(warnings(&client, &handle.namespace).await? == told, "somebody was warned");

    wanted(&handle, MORE).await?;
    let grown = are_well(bed, &handle, MORE).await?;
    until("the control plane has the endpoint of every member", PATIENCE, async || {
        let (published, status) = (handle.control_plane_endpoints().await?, handle.status().await?);
        ensure!(published.len() == MORE && published.join(",") == status.endpoints, "it has {published:?}");
        Ok(Some(()))
    })
    .await?;
    writers.endpoints(handle.control_plane_endpoints().await?);
    tokio::time::sleep(WRITES).await;
    let mut changed = before.changed(&State::of(bed, &handle).await?);
    changed.retain(|what| machines.iter().any(|name| what.contains(&format!("{name}:"))));
    ensure!(changed.is_empty(), "growing has changed {changed:#?}");
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &grown)?).await?;
    ensure!(figures.failed + figures.unknown == 0, "{figures}");
    ensure!(warnings(&client, &handle.namespace).await? == told, "somebody was warned");
    Ok(())
}

/// Waits until the new manager has looked at every member. Earlier ones do not report how long certificates are valid.
pub(crate) async fn is_looked_at(handle: &ClusterHandle, members: usize) -> Result<()> {
    until("the new manager has looked at every member", PATIENCE, async || {
        let status = handle.status().await?;
        let seen = status.members.iter().filter(|member| member.certificate_expires.is_some()).count();
        ensure!(seen == members && status.ready, "of {:?}: {:?}", status.members, status.conditions);
        Ok(Some(()))
    })
    .await
}

/// What distinguishes objects and etcd processes from others that have replaced them, and from changed ones.
#[derive(Debug)]
pub(crate) struct State(BTreeMap<String, String>);

/// Kinds of objects that an upgrade must not change.
const KINDS: [&str; 4] = ["Machine", "LocalMachine", "EtcdadmConfig", "KubeadmControlPlane"];

/// Prints each process of etcd, with the time at which the kernel has started it.
const PROCESSES: &str = "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm 2> /dev/null)\" = etcd ]; \
    then echo \"process ${p#/proc/}, started at $(cut -d ' ' -f 22 $p/stat)\"; fi; done";

impl State {
    /// Reads the state of a cluster.
    pub(crate) async fn of(bed: &Bed, handle: &ClusterHandle) -> Result<Self> {
        let mut found = BTreeMap::new();
        for kind in KINDS {
            for object in handle.api(kind).list(&ListParams::default()).await?.items {
                // Cluster API changes the Machines of its control plane by itself.
                let is_its_own = object.labels().contains_key("cluster.x-k8s.io/control-plane");
                let generation = object.metadata.generation.filter(|_| !is_its_own);
                let uid = object.uid().unwrap_or_default();
                found.insert(format!("{kind} {}", object.name_any()), format!("UID {uid}, generation {generation:?}"));
            }
        }
        for name in handle.etcd_machines().await? {
            let processes = said(&bed.machines.get(&handle.namespace, &name)?, &["sh", "-c", PROCESSES]).await?;
            ensure!(processes.lines().count() == 1, "of etcd there runs on {name}: {processes:?}");
            found.insert(format!("etcd on {name}"), processes.trim().to_owned());
        }
        Ok(Self(found))
    }

    /// What has been replaced or changed later, or is gone.
    pub(crate) fn changed(&self, later: &Self) -> Vec<String> {
        let differs = |(what, before): (&String, &String)| {
            let now = later.0.get(what).map_or("gone", String::as_str);
            (now != before).then(|| format!("{what}: {before}; now {now}"))
        };
        self.0.iter().filter_map(differs).collect()
    }
}
