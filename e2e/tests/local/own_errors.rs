//! All members are healthy, and it is our manager that cannot ask them. No member is blamed or replaced, and health
//! that is not known is not reported as healthy.

mod crowd;

use crate::addresses::{show, show_its_own};
use crate::bring_up::PATIENCE;
use crate::records::{Warning, told};
use anyhow::{Context, Result, ensure};
use api::names;
use crowd::{Crowd, Seat};
use e2e::bed::data::serves;
use e2e::bed::{Bed, ClusterHandle, first_address};
use e2e::observer::Silence;
use e2e::scenarios::is_full;
use e2e::until::until;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// How many clusters there are, and how many with `E2E_FULL` set.
const CLUSTERS: (usize, usize) = (8, 400);
/// How long a fault lasts: longer than it takes until a failing member counts as unhealthy.
const LASTS: Duration = Duration::from_secs(8);
/// How many objects are changed side by side.
const AT_ONCE: usize = 40;
/// How many more file descriptors the manager may have open than before: fewer than there are clusters.
const SPARE: usize = 4;
/// How long the number of open file descriptors must not fall before it counts as settled. Idle connections are
/// closed sooner.
const SETTLES: Duration = Duration::from_secs(100);
/// How names end that no resolver knows.
const UNKNOWN: &str = ".invalid";
/// How many times the manager is started with too few file descriptors, at most.
const STARTS: usize = 3;
/// How the manager reports that no file descriptor is left: in the system's words, and in its own.
const EXHAUSTED: [&str; 2] = ["too many open files", "out of file descriptors"];
/// A CA that no member knows.
const CERT: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.crt");
const KEY: &str = include_str!("../../../etcdadm/src/pki/testdata/pkcs1-rsa.key");

/// Three faults, one after the other. The manager has file descriptors for only a part of its many clusters. The
/// names of all machines cannot be resolved. A manager that has just started finds CAs that are not the members', so
/// it has no client certificate.
///
/// The limit of file descriptors is set so that it is too low for a part of the members, however many there are. 400
/// real clusters take an hour to come up, so with `E2E_FULL` they are simulated. The faults are the same, and strike
/// the same real manager.
pub(crate) async fn blame_no_member(bed: &mut Bed) -> Result<()> {
    let count = if is_full() { CLUSTERS.1 } else { CLUSTERS.0 };
    let mut crowd = Crowd::up(bed, count).await.context("the clusters come up")?;
    with_few_file_descriptors(bed, &mut crowd).await.context("file descriptors")?;
    crowd.until_all_is_well().await.context("after the manager has enough file descriptors again")?;
    with_unknown_names(bed, &crowd).await.context("DNS")?;
    crowd.until_all_is_well().await.context("after the names are gone")?;
    with_other_certificates(bed, &crowd).await.context("client certificates")?;
    crowd.until_all_is_well().await.context("after the CAs are back")?;
    nobody_is_blamed(&crowd).await.context("after all")?;
    crowd.nobody_is_replaced(bed).await
}

/// Starts the manager with file descriptors for itself and a quarter of its members. How many it needs differs from
/// start to start. If it had enough all the same, or does not report the lack, it is started again with fewer.
async fn with_few_file_descriptors(bed: &mut Bed, crowd: &mut Crowd) -> Result<()> {
    // A manager that has just brought up all clusters has more connections than it needs.
    bed.kill_manager(0).await?;
    bed.start_manager(0).await?;
    let (mut needed, members) = (open_files(bed)?, crowd.seats().await?.len());
    until("the manager is connected to all members", PATIENCE, async || {
        let before = needed;
        tokio::time::sleep(LASTS).await;
        needed = open_files(bed)?;
        Ok((needed >= members && needed <= before).then_some(()))
    })
    .await?;
    crowd.until_all_is_well().await.context("after the manager has begun again")?;
    crowd.forgive(bed).await?;
    crowd.is_at_stake(bed).await?;
    for _ in 0..STARTS {
        let limit = needed.saturating_sub(members * 3 / 4);
        println!("  the manager needs {needed} file descriptors, and gets {limit}");
        bed.kill_and_restart_manager(0).await?;
        let pid = bed.manager(0)?.pid().context("the manager has ended")?;
        let bound = Rlimit { current: Some(u64::try_from(limit)?), maximum: Some(u64::try_from(limit)?) };
        prlimit(Pid::from_raw(i32::try_from(pid)?), Resource::Nofile, bound).context("limit the manager")?;
        tokio::time::sleep(LASTS).await;
        let is_told = says_that_none_is_left(bed, crowd).await?;
        needed = open_files(bed)?;
        println!("  it has {needed}");
        nobody_is_blamed(crowd).await?;
        if is_told {
            bed.kill_manager(0).await?;
            return bed.start_manager(0).await;
        }
    }
    anyhow::bail!("with {needed} in use it said nothing of a lack {STARTS} times: nothing is shown")
}

/// Whether the manager reports, in its log or in the status of a cluster, that no file descriptor is left. That may
/// take a check or two.
async fn says_that_none_is_left(bed: &mut Bed, crowd: &Crowd) -> Result<bool> {
    let says = |text: &str| EXHAUSTED.iter().any(|words| text.to_lowercase().contains(words));
    let begun = Instant::now();
    loop {
        let log = fs::read_to_string(bed.manager(0)?.log()).unwrap_or_default();
        let states = crowd.states().await?;
        let told = states.iter().filter(|etcd| says(&format!("{:?}", etcd.status))).count();
        if told > 0 || says(&log) || begun.elapsed() >= LASTS * 2 {
            println!("  {told} clusters say that none is left, and its log does: {}", says(&log));
            return Ok(told > 0 || says(&log));
        }
        tokio::time::sleep(crowd::LOOKS).await;
    }
}

/// The CAs of all clusters are replaced while the manager is connected to their members, and are then put back. Then
/// the clusters are deleted. All this happens twice: no member is blamed, and the second time leaves no more
/// connections open than the first.
pub(crate) async fn leave_nothing_open(bed: &mut Bed) -> Result<()> {
    let mut crowd = Crowd::up(bed, CLUSTERS.0).await.context("the clusters come up")?;
    let first = comes_and_goes(bed, &mut crowd).await.context("the first time")?;
    crowd.grows(bed, CLUSTERS.0).await.context("the clusters come up again")?;
    let second = comes_and_goes(bed, &mut crowd).await.context("the second time")?;
    println!("  of the manager's file descriptors {first} were left, and then {second}");
    ensure!(second <= first + SPARE, "{first} file descriptors were left open, and then {second}");
    Ok(())
}

/// Replaces the CAs of all clusters, puts them back, and deletes the clusters. Returns how many file descriptors the
/// manager has open afterwards.
async fn comes_and_goes(bed: &mut Bed, crowd: &mut Crowd) -> Result<usize> {
    crowd.forgive(bed).await?;
    crowd.is_at_stake(bed).await?;
    let own = own_authorities(crowd).await?;
    with_the_authority_of_another(crowd, &own, async || refused(crowd).await).await?;
    crowd.until_all_is_well().await.context("after the CAs are back")?;
    nobody_is_blamed(crowd).await?;
    crowd.nobody_is_replaced(bed).await?;
    let connected = open_files(bed)?;
    crowd.goes().await?;
    let left = until_settled(bed).await?;
    println!("  the manager has {connected} file descriptors with the clusters, and {left} without");
    ensure!(left + CLUSTERS.0 <= connected, "of {connected} file descriptors {left} are left: nothing is shown");
    Ok(left)
}

/// How many file descriptors the manager has open once that number no longer falls: idle connections to the API
/// server stay open for a while.
async fn until_settled(bed: &mut Bed) -> Result<usize> {
    let (mut least, mut since) = (open_files(bed)?, Instant::now());
    while since.elapsed() < SETTLES {
        tokio::time::sleep(crowd::LOOKS).await;
        let now = open_files(bed)?;
        if now < least {
            (least, since) = (now, Instant::now());
        }
    }
    Ok(least)
}

/// File descriptors that the manager has open.
fn open_files(bed: &mut Bed) -> Result<usize> {
    let pid = bed.manager(0)?.pid().context("the manager has ended")?;
    Ok(fs::read_dir(format!("/proc/{pid}/fd")).context("list the manager's file descriptors")?.count())
}

/// The only address of every Machine is a name that nothing resolves. The machines hang, so members do not answer at
/// their last known addresses either: for all the manager knows, they have moved to where the names lead. The
/// LocalMachines are paused meanwhile, because their controller would correct the addresses.
async fn with_unknown_names(bed: &Bed, crowd: &Crowd) -> Result<()> {
    let (handle, seats) = (crowd.first()?, crowd.seats().await?);
    stream::iter(&seats)
        .map(|Seat { machine, .. }| async move {
            let unknown = json!([{"type": "InternalDNS", "address": format!("{machine}{UNKNOWN}")}]);
            show(handle, machine, &unknown).await
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    all_hang(bed, handle, &seats, true)?;
    let result = async {
        doubted(crowd).await.context("the names are asked")?;
        tokio::time::sleep(LASTS).await;
        nobody_is_blamed(crowd).await
    };
    let result = result.await;
    all_hang(bed, handle, &seats, false)?;
    elects_again(bed, handle).await?;
    show_their_own(handle, &seats).await?;
    result
}

/// Lets the machines, real or simulated, hang or go on. A machine that hangs accepts connections and never answers.
fn all_hang(bed: &Bed, handle: &ClusterHandle, seats: &[Seat], hang: bool) -> Result<()> {
    for Seat { machine, address } in seats {
        match bed.frozen() {
            Some(frozen) if hang => frozen.freeze(*address)?,
            Some(frozen) => frozen.thaw(*address)?,
            None => {
                let found = bed.machines.get(&handle.namespace, machine)?;
                if hang {
                    bed.fault(&format!("{machine} hangs"), &[&found], Silence::Lasting);
                    found.freeze()?;
                } else {
                    bed.fault_is_over(&format!("{machine} goes on"), &[&found]);
                    found.thaw()?;
                }
            }
        }
    }
    Ok(())
}

/// Waits until the real members of a cluster that have hung have a leader again. A manager that asked three members
/// before that would be right to say that the quorum is lost.
async fn elects_again(bed: &Bed, handle: &ClusterHandle) -> Result<()> {
    if bed.frozen().is_none() {
        for name in handle.etcd_machines().await? {
            serves(&bed.machines.get(&handle.namespace, &name)?).await?;
        }
    }
    Ok(())
}

/// Lets the Machines show their machines' addresses again, and waits until all do.
async fn show_their_own(handle: &ClusterHandle, seats: &[Seat]) -> Result<()> {
    let own = stream::iter(seats).map(|seat| show_its_own(handle, &seat.machine));
    own.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let (machines, mut looks) = (handle.api("Machine"), 0);
    until("no Machine shows a name", PATIENCE * 2, async || {
        // As in `show`: without a change, Cluster API reconciles the Machine again only after minutes.
        looks += 1;
        let touch = Patch::Merge(json!({"metadata": {"annotations": {"looks-again": looks.to_string()}}}));
        let mut left = 0;
        for machine in machines.list(&ListParams::default()).await?.items {
            let address = first_address(&machine).unwrap_or(UNKNOWN);
            if address.ends_with(UNKNOWN) {
                left += 1;
                machines.patch(&machine.name_any(), &PatchParams::default(), &touch).await.context("touch it")?;
            }
        }
        if left > 0 {
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        ensure!(left == 0, "{left} still do");
        Ok(Some(()))
    })
    .await
}

/// As after a restore of the wrong Secrets: a manager that starts finds CAs that are not the members', and has no
/// client certificate.
async fn with_other_certificates(bed: &mut Bed, crowd: &Crowd) -> Result<()> {
    let own = own_authorities(crowd).await?;
    // A running manager would keep using the client certificates that it has.
    bed.kill_manager(0).await?;
    let seen = async || {
        bed.start_manager(0).await?;
        doubted(crowd).await.context("the CAs are others than the members'")
    };
    with_the_authority_of_another(crowd, &own, seen).await
}

/// Certificate and key of each cluster's CA.
async fn own_authorities(crowd: &Crowd) -> Result<Vec<[String; 2]>> {
    let mut own = Vec::new();
    for handle in &crowd.looks {
        let secret = names::ca_secret(&handle.cluster);
        own.push([handle.secret(&secret, "tls.crt").await?, handle.secret(&secret, "tls.key").await?]);
    }
    Ok(own)
}

/// Replaces the CAs by one that the members do not know, and puts them back after a while. No member is blamed
/// meanwhile. `seen` runs once the CAs are replaced, and waits until the fault shows.
async fn with_the_authority_of_another(
    crowd: &Crowd,
    own: &[[String; 2]],
    seen: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    replace(crowd.looks.iter().map(|handle| (handle, CERT, KEY))).await?;
    let result = async {
        seen().await?;
        tokio::time::sleep(LASTS).await;
        nobody_is_blamed(crowd).await
    };
    let result = result.await;
    let own = own.iter().map(|[certificate, key]| (certificate.as_str(), key.as_str()));
    replace(crowd.looks.iter().zip(own).map(|(handle, (certificate, key))| (handle, certificate, key))).await?;
    result
}

/// Replaces the CA of each of these clusters by this certificate and key.
async fn replace<'a>(authorities: impl Iterator<Item = (&'a ClusterHandle, &'a str, &'a str)>) -> Result<()> {
    stream::iter(authorities)
        .map(|(handle, certificate, key)| async move {
            let patch = Patch::Merge(json!({"stringData": {"tls.crt": certificate, "tls.key": key}}));
            let secret = names::ca_secret(&handle.cluster);
            handle.secrets().patch(&secret, &PatchParams::default(), &patch).await.context("replace the CA")?;
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

/// A running manager keeps using the CAs that it knows, and reports that the present ones are not the recorded ones.
async fn refused(crowd: &Crowd) -> Result<()> {
    let says = |ready: &Condition| ready.reason == "SecretInvalid" && ready.message.contains("does not hold the CA");
    until_each("every cluster says that its CA is another one", PATIENCE, crowd, "Ready", says).await
}

/// Waits until no cluster reports its members as healthy. Otherwise the fault had no effect, and later checks show
/// nothing.
async fn doubted(crowd: &Crowd) -> Result<()> {
    let is_doubted = |healthy: &Condition| healthy.status != "True";
    until_each("no cluster knows the health of its members", PATIENCE * 2, crowd, "MembersHealthy", is_doubted).await
}

/// Waits until this condition of every cluster is as it should be.
async fn until_each(
    what: &str,
    patience: Duration,
    crowd: &Crowd,
    type_: &str,
    is: impl Fn(&Condition) -> bool,
) -> Result<()> {
    until(what, patience, async || {
        tokio::time::sleep(crowd::LOOKS).await;
        for etcd in crowd.states().await? {
            let (name, status) = (etcd.name_any(), etcd.status.unwrap_or_default());
            let condition = status.conditions.into_iter().find(|found| found.type_ == type_);
            let condition = condition.with_context(|| format!("{name} has no condition {type_}"))?;
            ensure!(is(&condition), "{name}: {condition:?}");
        }
        Ok(Some(()))
    })
    .await
}

/// Checks that no status says since when a member fails, no condition blames a member, and no new warning is about a
/// member.
async fn nobody_is_blamed(crowd: &Crowd) -> Result<()> {
    for etcd in crowd.states().await? {
        let (name, status) = (etcd.name_any(), etcd.status.unwrap_or_default());
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
    let new: Vec<&Warning> = warnings.difference(&crowd.forgiven).collect();
    ensure!(new.is_empty(), "{new:#?}");
    Ok(())
}

/// Warnings about members until now.
async fn warnings_about_members(client: &Client) -> Result<BTreeSet<Warning>> {
    let warnings = told(client, crowd::NAMESPACE).await?;
    Ok(warnings.into_iter().filter(|warning| is_about_a_member(&warning.text)).collect())
}

/// Whether a warning blames a member. Warnings about a wrong Secret, or about what our manager lacks, do not count.
fn is_about_a_member(warning: &str) -> bool {
    ["MemberUnhealthy", "QuorumLost", "MachineNotBooting"].iter().any(|reason| warning.starts_with(reason))
}
