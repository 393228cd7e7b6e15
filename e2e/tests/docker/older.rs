//! Cluster API 1.12, the oldest supported release, with the kinds of its docker infrastructure.

use crate::clusters::deleted_without_a_trace;
use crate::road::{PATIENCE, travel};
use anyhow::{Result, bail, ensure};
use e2e::bed::{ClusterHandle, Manifests};
use e2e::docker::DockerBed;
use e2e::plane::users;
use e2e::until::until;
use std::collections::BTreeSet;

const EXAMPLE: &str = "examples/docker/docker-machine.yaml";

/// The whole road with DockerMachines, whose provider waits for Nodes. Etcd's Machines have addresses and count as
/// provisioned nevertheless, and a deletion leaves nothing of them.
pub(crate) async fn one_control_plane(bed: &mut DockerBed) -> Result<()> {
    let mark = bed.plane.mark();
    travel(bed, EXAMPLE, "older", 1).await?;
    let handle = ClusterHandle::new(&bed.client(), &Manifests::of(EXAMPLE, "older", "older")?);
    let members: BTreeSet<String> = handle.etcd_machines().await?.into_iter().collect();
    ensure!(members.len() == 3, "etcd's Machines are {members:?}");
    for member in &members {
        until(format!("Machine {member} is provisioned"), PATIENCE, async || {
            let machine = handle.api("Machine").get(member).await?;
            let provisioned = machine.data["status"]["phase"] == "Provisioned"
                && machine.data["spec"]["providerID"] == format!("docker:////{member}")
                && machine.data["status"]["addresses"].as_array().is_some_and(|addresses| !addresses.is_empty());
            if provisioned { Ok(Some(())) } else { bail!("{} {}", machine.data["spec"], machine.data["status"]) }
        })
        .await?;
    }
    let patches = bed.plane.requests_since(mark)?.user(users::PROVIDER).resource("dockermachines").verb("patch");
    let patched: BTreeSet<String> = patches.iter().map(|request| request.name.clone()).collect();
    ensure!(patched == members, "our manager has changed DockerMachines {patched:?}");
    let done = patches.filter(|request| request.code == 200);
    ensure!(done.len() == members.len(), "a DockerMachine was changed more than once:\n{done}");
    deleted_without_a_trace(bed, &handle).await
}
