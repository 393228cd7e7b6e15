//! Objects are deleted past our pre-terminate hook. Either a person has removed the hook and every finalizer of a
//! Machine: its member is left in etcd without a machine, which is reported, and it is removed once it has failed for
//! long enough. Or the infrastructure machine alone is deleted.

use crate::account::changed_machines;
use crate::bring_up::PATIENCE;
use crate::departures::{only_theirs, replaced};
use crate::ill::{IMPATIENT, STALL, up};
use crate::load::LowLoad;
use crate::rolls::nothing_is_lost;
use crate::scale::{LOAD, data_of};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Membership};
use e2e::history::History;
use e2e::observer::Silence;
use e2e::until::until;
use kube::Error;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

/// While our manager is down, the infrastructure machine of a follower is deleted, and its Machine is deleted by force.
/// The member is reported together with its Machine, and leaves etcd without help. Another member takes its place, and
/// the others stay.
pub(crate) async fn past_its_hook(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "forced", IMPATIENT).await?;
    let old = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &old).await?;
    let writers = History::begin(bed.world(), &handle.namespace, &handle.etcd_access().await?, LOAD).await?;
    let status = handle.status().await?;
    let doomed = status.members.into_iter().find(|member| !member.leader).context("no such member")?;
    let machine = bed.machines.get(&handle.namespace, &doomed.machine)?;
    bed.fault(&format!("{}: its Machine is deleted by force", doomed.machine), &[&machine], Silence::Lasting);
    bed.kill_manager(0).await?;
    deleted_by_force(bed, &handle, &doomed.machine).await?;
    bed.start_manager(0).await?;

    let machines = replaced(bed, &handle, &doomed.machine).await?;
    let left: Vec<String> = old.into_iter().filter(|name| *name != doomed.machine).collect();
    ensure!(left.iter().all(|name| machines.contains(name)), "{left:?} were to stay, the Machines are {machines:?}");
    told(&handle, &["Warning MemberUnhealthy: ", &format!("its Machine {} is gone", doomed.machine)]).await?;
    told(&handle, &["Normal MemberRemoved: ", &format!("member {}, which no Machine carried", doomed.id)]).await?;
    let after = Membership::on(bed.machines.get(&handle.namespace, &left[0])?).await?;
    ensure!(after.cluster_id == before.cluster_id, "etcd was {before:?}, and is {after:?}");
    only_theirs(bed, &handle, &machines).await?;
    let figures = nothing_is_lost(&handle, writers, &data_of(bed, &handle, &machines)?).await?;
    ensure!(figures.longest_stall <= STALL, "{figures}");
    Ok(())
}

/// The infrastructure machine of a follower is deleted, and nothing else. Its machine goes with its data, and its Machine
/// stays. The member is replaced like any other that fails, once, and the others stay.
pub(crate) async fn without_its_infrastructure(bed: &mut Bed) -> Result<()> {
    let handle = up(bed, "forced-machine", IMPATIENT).await?;
    let old = handle.etcd_machines().await?;
    let before = handle.membership(&bed.machines, &old).await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let members = handle.status().await?.members;
    let doomed = members.into_iter().find(|member| !member.leader).context("no such member")?.machine;
    let machine = bed.machines.get(&handle.namespace, &doomed)?;
    bed.fault(&format!("{doomed}: its LocalMachine is deleted"), &[&machine], Silence::Lasting);
    bed.keep_logs(&machine)?;
    let mark = bed.plane.mark();
    handle.delete("LocalMachine", &doomed).await?;

    let machines = replaced(bed, &handle, &doomed).await?;
    let after = handle.membership(&bed.machines, &machines).await?;
    let stayed = before.stayed(&after);
    ensure!(after.cluster_id == before.cluster_id && stayed == 2, "etcd was {before:?}, and is {after:?}");
    told(&handle, &["Warning MemberUnhealthy: ", &doomed]).await?;
    changed_machines(bed, &handle, mark, &[doomed], 1)?;
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}

/// Waits until an event about the EtcdCluster contains all of this.
pub(crate) async fn told(handle: &ClusterHandle, what: &[&str]) -> Result<()> {
    until(format!("an event about {} says {what:?}", handle.etcd), PATIENCE, async || {
        let events = handle.events_about("EtcdCluster", &handle.etcd).await?;
        ensure!(events.iter().any(|event| what.iter().all(|what| event.contains(what))), "{events:?}");
        Ok(Some(()))
    })
    .await
}

/// Deletes the infrastructure machine of a Machine and then the Machine, and removes the Machine's hook and finalizers.
/// Waits until both are gone, and the machine with them, and deletes its config if it is left.
async fn deleted_by_force(bed: &Bed, handle: &ClusterHandle, name: &str) -> Result<()> {
    handle.delete("LocalMachine", name).await?;
    handle.delete("Machine", name).await?;
    let nothing = json!({
        "metadata": {"annotations": {api::names::PRE_TERMINATE_HOOK_ANNOTATION: null}, "finalizers": null},
    });
    let patch = Patch::Merge(&nothing);
    handle.api("Machine").patch(name, &PatchParams::default(), &patch).await.context("take the finalizers away")?;
    until(format!("nothing of {name} is left"), PATIENCE, async || {
        for kind in ["Machine", "LocalMachine"] {
            let found = handle.names(kind, "").await?;
            ensure!(!found.iter().any(|found| found == name), "{kind} {name} is there");
        }
        ensure!(bed.machines.get(&handle.namespace, name).is_err(), "the machine {name} is there");
        Ok(Some(()))
    })
    .await?;
    // The config stays if the Machine was gone before Cluster API's manager had seen the deletion. The person who
    // removed the finalizers then decides what happens to it.
    match handle.api("EtcdadmConfig").delete(name, &DeleteParams::background()).await {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).with_context(|| format!("delete EtcdadmConfig {name}")),
    }
}
