//! A longer life of a cluster, for the requests that a usual life does not take.

use super::{PATIENCE, left_behind};
use crate::bring_up::released;
use crate::departures::{only_theirs, replaced};
use crate::leftovers::is_begun;
use crate::rolls::{ROLLOUT, changed, ignore_what_is_in_use, up_to_date};
use crate::shrinks::{are_well, wanted};
use anyhow::{Context, Result, ensure};
use api::names::ENDPOINTS_IN_USE_ANNOTATION;
use e2e::apply::{api_for, apply_object};
use e2e::bed::data::on;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::observer::Silence;
use e2e::tools::Etcd;
use e2e::until::until;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use local_infrastructure::machine::Machine;
use serde_json::{Value, json};

/// How the user names of service accounts begin.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// The policy that refuses a Machine, and its message.
const POLICY: &str = "rbac-refuses-a-machine";
const REFUSAL: &str = "no such Machine is wanted here";

/// A cluster with a control plane that uses it. Its spec is corrected before it has a member, one of its Machines is
/// refused, its only member hangs for a while, and the record of its endpoints in use is lost. It grows to three
/// members, rolls out another version of etcd, replaces a member whose machine dies, and shrinks to one member.
pub(super) async fn long(bed: &Bed, manifests: Manifests) -> Result<ClusterHandle> {
    let client = bed.client();
    let file = json!({"path": "/etc/motd", "contentFrom": {"secret": {"name": "never-made", "key": "text"}}});
    let manifests = manifests.replicas(1).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": 1, "unhealthyAfterSeconds": 4});
        etcd["spec"]["etcdadmConfigSpec"]["files"] = json!([file]);
    });
    let handle = ClusterHandle::new(&client, &manifests);
    // The watch shows no lock without the label: the manager finds this one when it tries to make its own.
    let lock = left_behind(&handle.cluster, &json!({}))?;
    Api::namespaced(client.clone(), &handle.namespace).create(&PostParams::default(), &lock).await?;
    manifests.apply(&client).await?;
    corrected(&handle).await.context("its spec is corrected")?;
    handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    refused(bed, &handle).await.context("a Machine is refused")?;
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

/// A file in the spec comes from a Secret that does not exist, so the Machine never gets bootstrap data. When the
/// file is removed from the spec, the Machine is replaced by one with another name.
async fn corrected(handle: &ClusterHandle) -> Result<()> {
    let names = handle.member_names(2);
    let alone = async |name: &str| {
        until(format!("{name} is the only Machine"), PATIENCE, async || {
            let machines = handle.etcd_machines().await?;
            ensure!(machines == [name], "the Machines are {machines:?}");
            Ok(Some(()))
        })
        .await
    };
    alone(&names[0]).await?;
    changed(handle, &json!({"etcdadmConfigSpec": {"files": null}})).await?;
    alone(&names[1]).await
}

/// The API server refuses the Machine with the next name. When this Machine is not wanted any more, its EtcdadmConfig
/// and its infrastructure machine are deleted.
async fn refused(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    let client = bed.client();
    let names = handle.member_names(3);
    let objects = refusal(&handle.namespace, &names[2]);
    for object in &objects {
        apply_object(&client, object).await?;
    }
    let machines = handle.api("Machine");
    let mut next = machines.get(&names[1]).await?;
    next.metadata = ObjectMeta { name: Some(names[2].clone()), ..ObjectMeta::default() };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    until("the policy is in force", PATIENCE, async || match machines.create(&dry_run, &next).await {
        Err(kube::Error::Api(status)) if status.message.contains(REFUSAL) => Ok(Some(())),
        answer => {
            answer?;
            Ok(None)
        }
    })
    .await?;
    wanted(handle, 3).await?;
    is_begun(handle, &names[2]).await?;
    wanted(handle, 1).await?;
    let left = are_well(bed, handle, 1).await?;
    only_theirs(bed, handle, &left).await?;
    for object in &objects {
        let (api, name) = api_for(&client, object).await?;
        api.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// A policy that refuses one Machine, and its binding. It refuses with `Invalid`, because a 403 would count as a
/// missing permission.
fn refusal(namespace: &str, machine: &str) -> [Value; 2] {
    let (version, metadata) = ("admissionregistration.k8s.io/v1", json!({"name": POLICY}));
    let group = ["cluster.x-k8s.io"];
    let creates =
        json!({"apiGroups": group, "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["machines"]});
    let is_another = format!("object.metadata.namespace != '{namespace}' || object.metadata.name != '{machine}'");
    let policy = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "matchConstraints": {"resourceRules": [creates]},
            "validations": [{"expression": is_another, "message": REFUSAL, "reason": "Invalid"}],
        },
    });
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

/// The EtcdCluster is Ready a second time, and so repeats its first event.
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

/// The record of the endpoints in use is removed, and the manager reads what the control plane's machines were made
/// with. It records that only if the control plane has reported on its present spec, which a control plane without a
/// running API server does not do (see `cluster-hooks/src/plan/in_use.rs`). So the scenario puts the record back.
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

/// The control plane never rolls out here, not even with the endpoints that it was told when etcd grew. So a person
/// says that nothing has to wait for that.
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
