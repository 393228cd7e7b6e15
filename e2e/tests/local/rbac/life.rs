//! A longer life: whatever takes requests of another kind.

use super::PATIENCE;
use crate::bring_up::released;
use crate::departures::replaced;
use crate::rolls::{ROLLOUT, changed, ignore_what_is_in_use, up_to_date};
use crate::shrinks::{are_well, wanted};
use anyhow::{Context, Result, ensure};
use api::names::ENDPOINTS_IN_USE_ANNOTATION;
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::tools::Etcd;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use local_infrastructure::machine::Machine;
use serde_json::json;

/// How the users begin that Pods are.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// With a control plane that uses it: its only member is away for a while, it forgets which endpoints are used, grows
/// to three, rolls to another version, a machine dies and is replaced, and one member is left.
pub(super) async fn long(bed: &Bed, manifests: Manifests) -> Result<ClusterHandle> {
    let client = bed.client();
    let manifests = manifests.replicas(1).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 4});
    });
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    hangs(bed, &handle).await.context("its machine hangs")?;
    forgets(bed, &handle).await.context("it forgets which endpoints are used")?;
    wanted(&handle, 3).await?;
    are_well(bed, &handle, 3).await.context("it grows")?;
    rolls(bed, &handle).await.context("it rolls")?;
    dies(bed, &handle).await.context("a machine dies")?;
    wanted(&handle, 1).await?;
    ignore_what_is_in_use(&handle).await?;
    are_well(bed, &handle, 1).await.context("it shrinks")?;
    Ok(handle)
}

/// It is Ready a second time, which is told with the words of the first.
async fn hangs(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let name = handle.etcd_machines().await?.pop().context("no Machine")?;
    let machine = bed.machines.get(&handle.namespace, &name)?;
    bed.fault(&format!("{name}: its machine hangs"), &[&machine], Silence::Lasting);
    on(&machine, Machine::freeze).await?;
    until("it is not Ready", PATIENCE, async || Ok((!handle.status().await?.ready).then_some(()))).await?;
    bed.fault_is_over(&format!("{name}: its machine goes on"), &[&machine]);
    on(&machine, Machine::thaw).await?;
    handle.until_ready(PATIENCE).await?;
    Ok(())
}

/// Somebody takes the record away: the manager asks what the control plane's machines were made with. It records that only
/// if the control plane has reported on its present spec, which one whose API server never runs does not do (see
/// `cluster-hooks/src/plan/in_use.rs`). So that somebody puts it back.
async fn forgets(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let recorded = in_use(handle).await?.context("no endpoints are said to be in use")?;
    let (mark, of_etcd) = (bed.plane.mark(), handle.etcds());
    let record = async |value: Option<&str>| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {ENDPOINTS_IN_USE_ANNOTATION: value}}}));
        of_etcd.patch(&handle.etcd, &PatchParams::default(), &patch).await
    };
    record(None).await?;
    until("the control plane's machines are looked at", PATIENCE, async || {
        let ours = bed.plane.requests_since(mark)?.filter(|request| request.user.starts_with(SERVICE_ACCOUNT));
        let asked = ours.done_in(&handle.namespace).verb("list").resource("kubeadmconfigs");
        Ok((!asked.is_empty()).then_some(()))
    })
    .await?;
    let there = in_use(handle).await?;
    ensure!(there.as_ref().is_none_or(|there| *there == recorded), "it was {recorded}, and is {there:?}");
    record(Some(&recorded)).await?;
    Ok(())
}

async fn in_use(handle: &ClusterHandle) -> Result<Option<String>> {
    Ok(handle.etcds().get(&handle.etcd).await?.annotations().get(ENDPOINTS_IN_USE_ANNOTATION).cloned())
}

/// The control plane never rolls out here, also not with what it was told when etcd grew. So a person says that nothing
/// waits for that.
async fn rolls(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let (old, before) = (handle.etcd_machines().await?, handle.status().await?.endpoints);
    let version = Etcd::V3_7.version()?;
    changed(handle, &json!({"etcdadmConfigSpec": {"version": version}})).await?;
    ignore_what_is_in_use(handle).await?;
    until("the control plane is told of other members", ROLLOUT, async || {
        let (status, published) = (handle.status().await?, handle.control_plane_endpoints().await?.join(","));
        ensure!(published != before && published == status.endpoints, "{published}: {:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    until("the old members are gone", ROLLOUT, async || {
        let (status, machines) = (handle.status().await?, handle.etcd_machines().await?);
        ensure!(!machines.iter().any(|name| old.contains(name)), "{machines:?}: {:?}", status.conditions);
        ensure!(up_to_date(&status)?.0 == "True", "{:?}", status.conditions);
        Ok(Some(()))
    })
    .await?;
    are_well(bed, handle, old.len()).await?;
    let status = handle.status().await?;
    ensure!(status.version == version, "it runs {}", status.version);
    Ok(())
}

async fn dies(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let mut members = handle.status().await?.members.into_iter();
    let doomed = members.find(|member| !member.leader).context("no such member")?.machine;
    let machine = bed.machines.get(&handle.namespace, &doomed)?;
    bed.fault(&format!("{doomed}: its machine is killed"), &[&machine], Silence::Lasting);
    on(&machine, Machine::kill).await?;
    replaced(bed, handle, &doomed).await.map(drop)
}
