//! `kubectl etcdcluster move` with the real clusterctl, from one management plane to another and back, while clients
//! write to etcd. The control plane moves along, and keeps the endpoints and the client certificate that it was given.

mod control_plane;

use super::{PATIENCE, install, released, uninstall};
use crate::scale::{LOAD as DENSE, data_of};
use anyhow::{Context, Result, bail, ensure};
use api::{EtcdClusterStatus, names};
use control_plane::{Given, is_untouched, works};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership, plugin};
use e2e::clusterctl::Setup;
use e2e::history::{History, Load};
use e2e::plane::{Plane, users};
use e2e::process::output_of;
use e2e::scenarios::caught;
use e2e::until::until;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MOVED: &str = "moved";
/// A light load: moves take minutes, and the judge has to check all requests.
const LOAD: Load = Load { clients: 1, rest: Duration::from_millis(400), ..DENSE };
/// The kinds of the cluster's objects.
const KINDS: [&str; 7] =
    ["Cluster", "EtcdCluster", "KubeadmControlPlane", "Machine", "EtcdadmConfig", "KubeadmConfig", "LocalMachine"];
/// clusterctl is cut off when it has reported that it makes the first object, or that it deletes the first one.
const CUTS: [&str; 2] = ["Creating", "Deleting"];
/// Label of the CRDs of kinds that clusterctl moves.
const KNOWN: &str = "clusterctl.cluster.x-k8s.io";
/// The kind of the machines: the name of its CRD, and its name in messages.
const MACHINES: (&str, &str) =
    ("localmachines.infrastructure.cluster.x-k8s.io", "LocalMachine.infrastructure.cluster.x-k8s.io");
/// How long the control plane must not change.
const STAYS: Duration = Duration::from_secs(2);

/// After dry runs, a cluster moves to the second plane. The first move back is given up. The next one succeeds after
/// two interruptions, and then the cluster moves to the second plane again. Members and processes stay the same, no
/// write is lost, and nothing is written to the control plane. Then the cluster grows on the second plane, and is
/// deleted there.
pub(crate) async fn moves(bed: &mut Bed) -> Result<()> {
    let bed = &*bed;
    let setup = released(bed).await?;
    let second = bed.second_plane().await?;
    let ended = caught(there_and_back(bed, &setup, &second.plane)).await;
    if ended.is_err()
        && let Err(missing) = second.keep_evidence().await
    {
        println!("  not all evidence of the second plane could be kept: {missing:#}");
    }
    ended
}

async fn there_and_back(bed: &Bed, setup: &Setup, second: &Plane) -> Result<()> {
    for plane in [&bed.plane, second] {
        install(setup, plane).await?;
        known_to_clusterctl(&plane.client()).await?;
    }
    let client = bed.client();
    ClusterHandle::make_namespace(&client, MOVED).await?;
    let manifests = Manifests::new(MOVED, "demo")?;
    manifests.apply(&client).await?;
    let here = Side { plane: &bed.plane, handle: ClusterHandle::new(&client, &manifests) };
    let there = Side { plane: second, handle: ClusterHandle::new(&second.client(), &manifests) };
    here.handle.until_control_plane_data(PATIENCE).await?;
    let before = here.what_there_is(bed).await?;
    before.given.is_whole()?;
    let begun = [(&here, bed.plane.mark()), (&there, second.mark())];

    dry_run(bed, &here, &there, &before).await.context("a dry run")?;
    refused_without_the_plugin(setup, &here, &there).await?;
    ensure!(here.what_there_is(bed).await? == before, "a move that was refused has changed something");

    let writers = History::begin(bed.world(), MOVED, &here.handle.etcd_access().await?, LOAD).await?;
    let whole = script(setup, "clusterctl-whole", "")?;
    here.move_to(&there, &whole).await.context("there")?;
    same(&before, &there.what_there_is(bed).await?)?;
    given_up(setup, &there, &here, &whole).await.context("given up")?;
    same(&before, &there.what_there_is(bed).await?)?;
    for cut in CUTS {
        there.cut(setup, &here, cut).await?;
    }
    there.move_to(&here, &whole).await.context("back")?;
    same(&before, &here.what_there_is(bed).await?)?;
    here.move_to(&there, &whole).await.context("there again")?;
    same(&before, &there.what_there_is(bed).await?)?;
    for (side, since) in begun {
        is_untouched(&side.handle, side.plane, since)?;
    }
    let record = writers.end().await?;
    let figures = record.figures();
    println!("  {MOVED}: {figures}");
    ensure!(figures.failed + figures.unknown == 0, "{figures}");
    println!("  {MOVED}: {}", record.judge(&data_of(bed, &there.handle, &there.handle.member_names(3))?)?);

    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    there.handle.etcds().patch(&there.handle.etcd, &PatchParams::default(), &patch).await?;
    let grown = until("five members are ready", PATIENCE, async || {
        let status = there.handle.status().await?;
        ensure!(status.ready && status.members.len() == 5, "{:?}", status.conditions);
        Ok(Some(members(&status)))
    })
    .await?;
    ensure!(before.members.iter().all(|member| grown.contains(member)), "{:?} became {grown:?}", before.members);
    there.handle.delete("Cluster", "demo").await?;
    there.handle.until_nothing_is_left(&KINDS, PATIENCE).await?;
    ensure!(bed.machines.list()?.iter().all(|machine| machine.spec().namespace != MOVED), "machines are left");
    uninstall(setup, &bed.plane).await
}

/// One management plane, and the cluster in it.
struct Side<'a> {
    plane: &'a Plane,
    handle: ClusterHandle,
}

/// What a move must not change. Only the UIDs change.
#[derive(Debug, PartialEq)]
struct WhatThereIs {
    etcd: Membership,
    members: Vec<(String, String)>,
    endpoints: String,
    given: Given,
    /// The first process of each machine.
    processes: Vec<(String, Option<i32>)>,
    /// UIDs of the Machines. Nothing but a move changes them.
    uids: Vec<Option<String>>,
}

fn same(before: &WhatThereIs, after: &WhatThereIs) -> Result<()> {
    let is_same = before.etcd == after.etcd
        && before.members == after.members
        && before.endpoints == after.endpoints
        && before.given == after.given
        && before.processes == after.processes;
    ensure!(is_same, "{before:?} became {after:?}");
    Ok(())
}

/// Names and IDs of the members.
fn members(status: &EtcdClusterStatus) -> Vec<(String, String)> {
    status.members.iter().map(|member| (member.name.clone(), member.id.clone())).collect()
}

impl Side<'_> {
    async fn what_there_is(&self, bed: &Bed) -> Result<WhatThereIs> {
        let status = self.handle.until_ready(PATIENCE).await?;
        let names = self.handle.etcd_machines().await?;
        let etcd = self.handle.membership(&bed.machines, &names).await?;
        let process = |name: &String| {
            let machine = bed.machines.get(&self.handle.namespace, name)?;
            anyhow::Ok((name.clone(), machine.first_process()))
        };
        let machines = self.handle.api("Machine").list(&ListParams::default()).await?.items;
        Ok(WhatThereIs {
            etcd,
            members: members(&status),
            endpoints: status.endpoints,
            given: Given::read(&self.handle).await?,
            processes: names.iter().map(process).collect::<Result<_>>()?,
            uids: machines.iter().map(ResourceExt::uid).collect(),
        })
    }

    /// Runs the command as a person types it, with this program as clusterctl.
    async fn move_to(&self, other: &Side<'_>, clusterctl: &Path) -> Result<String> {
        works(&self.handle).await?;
        let mut command = self.types(other)?;
        command.arg("--clusterctl").arg(clusterctl);
        command.env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
        output_of(command).await
    }

    /// The same, with a clusterctl that is cut off when it has reported this of an object. After that, the source stays
    /// paused.
    async fn cut(&self, setup: &Setup, other: &Side<'_>, cut: &str) -> Result<()> {
        let program = script(setup, &format!("clusterctl-{cut}"), &format!(" | sed '/{cut} [A-Z]/q'"))?;
        let Err(error) = self.move_to(other, &program).await else { bail!("{cut}: it was not cut") };
        println!("  cut at {cut}: {error:#}");
        ensure!(format!("{error:#}").contains("run the same command again"), "{cut}: {error:#}");
        let cluster = self.handle.api("Cluster").get(&self.handle.cluster).await?;
        ensure!(cluster.data.pointer("/spec/paused") == Some(&json!(true)), "{cut}: the source goes on: {cluster:?}");
        Ok(())
    }

    /// What `--dry-run` prints, and its exit status.
    async fn dry_run(&self, other: &Side<'_>) -> Result<(Option<i32>, String)> {
        let mut command = self.types(other)?;
        command.arg("--dry-run");
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.code(), said))
    }

    fn types(&self, other: &Side<'_>) -> Result<Command> {
        let mut command = Command::new(plugin()?);
        command.args(["move", "--namespace", MOVED, "--kubeconfig"]).arg(self.plane.kubeconfig()?);
        command.arg("--to-kubeconfig").arg(other.plane.kubeconfig()?);
        Ok(command)
    }
}

/// While the machines would stay behind, `--dry-run` names this as the only obstacle. Then it says that there is none.
/// It writes nothing on either side.
async fn dry_run(bed: &Bed, here: &Side<'_>, there: &Side<'_>, before: &WhatThereIs) -> Result<()> {
    let begun = [here.plane, there.plane].map(|plane| (plane, plane.mark()));
    let crds: Api<CustomResourceDefinition> = Api::all(there.plane.client());
    let unknown = Patch::Merge(json!({"metadata": {"labels": {KNOWN: null}}}));
    crds.patch(MACHINES.0, &PatchParams::default(), &unknown).await?;
    let (status, said) = here.dry_run(there).await?;
    println!("  dry run: {}", said.trim_end());
    let obstacle = format!("{} would stay behind", MACHINES.1);
    ensure!(status == Some(1) && said.lines().count() == 1 && said.contains(&obstacle), "{status:?}: {said}");
    known_to_clusterctl(&there.plane.client()).await?;
    let (status, said) = here.dry_run(there).await?;
    let may_go = said == "It could be moved now, as far as etcd is concerned.\n";
    ensure!(status == Some(0) && may_go, "{status:?}: {said}");
    // This takes longer than a request takes to appear in the audit log.
    ensure!(here.what_there_is(bed).await? == *before, "something has changed");
    for (plane, since) in begun {
        let writes = plane.requests_since(since)?.user(users::ADMIN).writes();
        let writes = writes.filter(|request| request.namespace == MOVED);
        ensure!(writes.is_empty(), "it has written:\n{writes}");
    }
    Ok(())
}

/// Gives a move up, although giving it up was interrupted before: the Cluster in the target is already marked for
/// deletion. From there, only `--undo` goes on. A move must not, because clusterctl would write into objects that are
/// being deleted in the target, and delete the source.
async fn given_up(setup: &Setup, from: &Side<'_>, to: &Side<'_>, whole: &Path) -> Result<()> {
    from.cut(setup, to, "Creating").await?;
    let made = to.handle.api("Cluster");
    let mark = Patch::Merge(json!({"metadata": {"annotations": {names::DELETE_FOR_MOVE_ANNOTATION: ""}}}));
    made.patch(&to.handle.cluster, &PatchParams::default(), &mark).await?;
    let Err(error) = from.move_to(to, whole).await else { bail!("it goes on over what is on its way out") };
    ensure!(format!("{error:#}").contains("--undo goes on with that"), "{error:#}");
    let mut undo = from.types(to)?;
    undo.arg("--undo");
    println!("  given up: {}", output_of(undo).await?.trim_end());
    ensure!(made.get_opt(&to.handle.cluster).await?.is_none(), "the target has the Cluster still");
    Ok(())
}

/// clusterctl alone refuses the move, with an error about Nodes that does not say what is missing.
async fn refused_without_the_plugin(setup: &Setup, here: &Side<'_>, there: &Side<'_>) -> Result<()> {
    works(&here.handle).await?;
    let target = there.plane.kubeconfig()?.to_str().context("a path in UTF-8")?;
    let alone = ["move", "--namespace", MOVED, "--to-kubeconfig", target];
    let Err(error) = setup.run(here.plane.kubeconfig()?, &alone).await else {
        bail!("clusterctl alone moves it: docs/move.md says otherwise")
    };
    ensure!(format!("{error:#}").contains("is still provisioning the node"), "{error:#}");
    Ok(())
}

/// Makes a program that runs clusterctl with its configuration and reports each object. `rest` is appended to the
/// command line: what the output goes to.
fn script(setup: &Setup, name: &str, rest: &str) -> Result<PathBuf> {
    let path = setup.directory().join(name);
    let (program, configuration) = (setup.program().display(), setup.configuration());
    let line = format!("{program} \"$@\" --config {} -v 1 2>&1{rest}", configuration.display());
    write(&path, format!("#!/bin/sh\n{line}\n")).with_context(|| format!("write {}", path.display()))?;
    set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Gives Cluster API's CRDs the label that clusterctl gives them when it installs them. Here they were installed
/// without clusterctl.
async fn known_to_clusterctl(client: &Client) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {KNOWN: ""}}}));
    for crd in crds.list(&ListParams::default()).await?.items {
        if crd.spec.group == "cluster.x-k8s.io" || crd.spec.group.ends_with(".cluster.x-k8s.io") {
            crds.patch(&crd.name_any(), &PatchParams::default(), &label).await?;
        }
    }
    Ok(())
}
