//! Members are well, and it is we who cannot ask them: nobody is blamed, and what cannot be known is not said to be well.

mod crowd;

use crate::addresses::{show, show_its_own};
use crate::bring_up::PATIENCE;
use anyhow::{Context, Result, ensure};
use api::EtcdCluster;
use api::names;
use crowd::Crowd;
use e2e::bed::{Bed, Look};
use e2e::observer::Silence;
use e2e::scenarios::is_full;
use e2e::until::until;
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Clusters of one member, and with `E2E_FULL` set.
const CLUSTERS: (usize, usize) = (8, 400);
/// How long a fault lasts. More than it takes until a failing member counts as unhealthy.
const LASTS: Duration = Duration::from_secs(8);
/// How often the manager is started to have too few file descriptors.
const STARTS: usize = 3;
/// A CA that no member knows.
const CERT: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.crt");
const KEY: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.key");

/// One after the other, in many clusters: no file descriptor is left for a connection; the name of a machine is not
/// resolved; the CA that our client certificate comes from is not the members'.
///
/// The limit of file descriptors is set so that it is too low for a part of the members, however many there are. 400 real ones
/// take an hour to come up, so with `E2E_FULL` they are simulated; the faults are those of the same real manager.
pub(crate) async fn blame_no_member(bed: &mut Bed) -> Result<()> {
    let count = if is_full() { CLUSTERS.1 } else { CLUSTERS.0 };
    let mut crowd = Crowd::up(bed, count).await.context("the clusters come up")?;
    with_few_file_descriptors(bed, &mut crowd).await.context("file descriptors")?;
    crowd.until_all_is_well().await.context("after the manager has enough file descriptors again")?;
    with_an_unknown_name(bed, &crowd).await.context("DNS")?;
    crowd.until_all_is_well().await.context("after the name is gone")?;
    with_another_certificate(bed, &crowd).await.context("client certificate")?;
    crowd.until_all_is_well().await.context("after the CA is back")
}

/// The manager begins with room for itself and a quarter of its members. How much it needs differs from start to start: where
/// it had enough all the same, it begins again with less.
async fn with_few_file_descriptors(bed: &mut Bed, crowd: &mut Crowd) -> Result<()> {
    // One that has just brought all of them up has more connections than it needs.
    bed.kill_manager(0).await?;
    bed.start_manager(0).await?;
    let mut needed = open_files(bed)?;
    until("the manager is connected to all members", PATIENCE, async || {
        let before = needed;
        tokio::time::sleep(LASTS).await;
        needed = open_files(bed)?;
        Ok((needed >= crowd.looks.len() && needed <= before).then_some(()))
    })
    .await?;
    crowd.until_all_is_well().await.context("after the manager has begun again")?;
    crowd.forgive(bed).await?;
    for _ in 0..STARTS {
        let limit = needed.saturating_sub(crowd.looks.len() * 3 / 4);
        println!("  the manager needs {needed} file descriptors, and gets {limit}");
        bed.kill_and_restart_manager(0).await?;
        let pid = bed.manager(0)?.pid().context("the manager has ended")?;
        let bound = Rlimit { current: Some(u64::try_from(limit)?), maximum: Some(u64::try_from(limit)?) };
        prlimit(Pid::from_raw(i32::try_from(pid)?), Resource::Nofile, bound).context("limit the manager")?;
        tokio::time::sleep(LASTS).await;
        let log = bed.manager(0)?.log().to_owned();
        let said = fs::read_to_string(&log).unwrap_or_default().to_lowercase();
        let exhausted = "too many open files";
        let states = crowd.states().await?;
        let told = states.iter().filter(|etcd| format!("{:?}", etcd.status).to_lowercase().contains(exhausted)).count();
        needed = open_files(bed)?;
        println!("  it has {needed}; {told} clusters say so, its log {}", said.matches(exhausted).count());
        nobody_is_blamed(crowd, &states).await?;
        if told > 0 || said.contains(exhausted) || needed + 2 >= limit {
            bed.kill_manager(0).await?;
            return bed.start_manager(0).await;
        }
    }
    anyhow::bail!("with {needed} in use it had enough {STARTS} times: nothing is shown")
}

/// File descriptors that the manager has open.
fn open_files(bed: &mut Bed) -> Result<usize> {
    let pid = bed.manager(0)?.pid().context("the manager has ended")?;
    Ok(fs::read_dir(format!("/proc/{pid}/fd")).context("list the manager's file descriptors")?.count())
}

/// A Machine's only address is a name, and nobody resolves names here. Where its member answered last, nothing answers any more: it
/// may have moved to where the name leads. The LocalMachine is paused meanwhile, as its controller would correct the address.
async fn with_an_unknown_name(bed: &Bed, crowd: &Crowd) -> Result<()> {
    let look = &crowd.looks[0];
    let machine = look.member_names(1)[0].clone();
    let address = look.api("LocalMachine").get(&machine).await?.data["status"]["addresses"][0]["address"].clone();
    let address: Ipv4Addr = address.as_str().context("no address")?.parse()?;
    let result = async {
        let unknown = json!([{"type": "InternalDNS", "address": format!("{machine}.invalid")}]);
        show(look, &machine, &unknown).await?;
        hangs(bed, look, &machine, address, true)?;
        doubted(look).await.context("the name is asked")?;
        tokio::time::sleep(LASTS).await;
        nobody_is_blamed(crowd, &crowd.states().await?).await
    };
    let result = result.await;
    hangs(bed, look, &machine, address, false)?;
    show_its_own(look, &machine).await?;
    result
}

/// Whether a machine, real or simulated, takes connections and never answers.
fn hangs(bed: &Bed, look: &Look, name: &str, address: Ipv4Addr, hangs: bool) -> Result<()> {
    match bed.frozen() {
        Some(frozen) if hangs => frozen.freeze(address),
        Some(frozen) => frozen.thaw(address),
        None => {
            let machine = bed.machines.get(&look.namespace, name)?;
            if hangs {
                bed.fault(&format!("{name} hangs"), &[&machine], Silence::Lasting);
                machine.freeze()?;
            } else {
                bed.fault_is_over(&format!("{name} goes on"), &[&machine]);
                machine.thaw()?;
            }
            Ok(())
        }
    }
}

/// A restore of the wrong Secret: our certificates come from another CA than the members'.
async fn with_another_certificate(bed: &mut Bed, crowd: &Crowd) -> Result<()> {
    let look = &crowd.looks[0];
    let secret = names::ca_secret(&look.cluster);
    let own = [look.secret(&secret, "tls.crt").await?, look.secret(&secret, "tls.key").await?];
    replace(look, &secret, CERT, KEY).await?;
    // Nothing that it has made before is of use then.
    bed.kill_manager(0).await?;
    bed.start_manager(0).await?;
    let result = async {
        doubted(look).await.context("our certificates come from another CA")?;
        tokio::time::sleep(LASTS).await;
        nobody_is_blamed(crowd, &crowd.states().await?).await
    };
    let result = result.await;
    replace(look, &secret, &own[0], &own[1]).await?;
    result
}

async fn replace(look: &Look, secret: &str, certificate: &str, key: &str) -> Result<()> {
    let patch = Patch::Merge(json!({"stringData": {"tls.crt": certificate, "tls.key": key}}));
    look.secrets().patch(secret, &PatchParams::default(), &patch).await.context("replace the CA")?;
    Ok(())
}

/// It is seen that members cannot be asked: what comes after shows something.
async fn doubted(look: &Look) -> Result<()> {
    until("a member's health is not known", PATIENCE, async || {
        let conditions = look.status().await?.conditions;
        let healthy = conditions.into_iter().find(|found| found.type_ == "MembersHealthy");
        let healthy = healthy.context("there is no condition MembersHealthy")?;
        ensure!(healthy.status != "True", "{healthy:?}");
        Ok(Some(()))
    })
    .await
}

/// No member fails since some time, no condition says so, and no event warns.
async fn nobody_is_blamed(crowd: &Crowd, states: &[EtcdCluster]) -> Result<()> {
    for etcd in states {
        let (name, status) = (etcd.name_any(), etcd.status.clone().unwrap_or_default());
        let blamed: Vec<_> = status.members.iter().filter(|member| member.unhealthy_since.is_some()).collect();
        ensure!(blamed.is_empty(), "{name}: {blamed:?}");
        for condition in status.conditions.iter().filter(|found| found.type_ == "MembersHealthy") {
            ensure!(condition.status != "False", "{name}: {condition:?}");
        }
        for condition in status.conditions.iter().filter(|found| found.type_ == "Available") {
            ensure!(condition.reason != "QuorumLost", "{name}: {condition:?}");
        }
    }
    let warnings = warnings_about_members(&crowd.client).await?;
    let new: Vec<&String> = warnings.difference(&crowd.warnings).collect();
    ensure!(new.is_empty(), "{new:#?}");
    Ok(())
}

/// Warnings about members until now.
async fn warnings_about_members(client: &Client) -> Result<BTreeSet<String>> {
    let warnings = crate::records::warnings(client, crowd::NAMESPACE).await?;
    Ok(warnings.into_iter().filter(|line| is_about_a_member(line)).collect())
}

/// Of a Secret that is wrong, or of our own lack, people may be warned.
fn is_about_a_member(warning: &str) -> bool {
    ["MemberUnhealthy", "QuorumLost", "MachineNotBooting"].iter().any(|reason| warning.starts_with(reason))
}
