//! A learner that answers but is never promoted, because etcdadm, which has to do that on its machine, is stopped.
//! The learner has all its time. Then another one takes its place, and it never comes back.

use crate::boots::{keep, until_released};
use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::ill::{PATIENT, checked};
use crate::load::LowLoad;
use crate::shrinks::{alone, are_well, wanted};
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::{Health, MemberRole};
use e2e::bed::data::{Host, said};
use e2e::bed::{Bed, Manifests, Membership};
use e2e::observer::Silence;
use e2e::until::{Broken, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The machine on which etcdadm is stopped.
const DOOMED: &str = "demo-etcd-3";
/// Seconds that a Machine has to become a member: as short as a busy computer allows for the other machines. A learner
/// that answers has six times as long to become a voter.
const GRACE: u64 = 20;
const GRACES: u64 = 6;
/// How long the scenario waits, each time, to see that the learner does not come back.
const STAYS_OUT: Duration = Duration::from_secs(6);
/// For how many tenths of a second etcd has to run beside a stopped etcdadm: longer than it takes to end.
const STANDS: u64 = 60;
/// What `timeout` exits with when time is up.
const TIMED_OUT: i32 = 124;

/// Sends a signal to etcdadm, and prints which process got it.
const SEND: &str = r#"for p in /proc/[0-9]*; do
    if [ "$(cat $p/comm 2>/dev/null)" = etcdadm ]; then kill -"$0" "$(basename $p)" && basename $p; fi
done"#;

/// A command to run before etcdadm. On the machine of this name it stops etcdadm once etcd has a WAL. By then the
/// member is added and etcd starts. The rest, which takes longer, is etcdadm's work. If etcdadm was about to restart etcd
/// with other settings, because another member has joined meanwhile, etcd ends: then etcdadm goes on until etcd runs
/// again. The command does this once in the life of the machine: an etcdadm that is started later is not stopped.
fn stands_still(machine: &str) -> String {
    let is_it = "[ \"$(cat $p/comm 2>/dev/null)\" = etcdadm ]";
    let all = |signal: &str| {
        format!("for p in /proc/[0-9]*; do if {is_it}; then kill -{signal} \"$(basename $p)\"; fi; done")
    };
    let runs = "cat /proc/[0-9]*/comm 2>/dev/null | grep -qx etcd";
    let begun = format!("until [ -d /var/lib/etcd/member/wal ] && {runs}; do sleep 0.02; done");
    let stays = format!("n=0; while [ $n -lt {STANDS} ] && {runs}; do sleep 0.1; n=$((n + 1)); done");
    let (stop, go_on) = (all("STOP"), all("CONT"));
    let stop = format!("while {begun}; {stop}; {stays}; [ $n -lt {STANDS} ]; do {go_on}; done");
    let here = format!("[ \"$(cat /etc/hostname)\" = {machine} ] && mkdir /var/lib/stood-still 2>/dev/null");
    format!("if {here}; then setsid sh -c '{stop}' < /dev/null > /dev/null 2>&1 & fi")
}

/// From three members to five. The fourth is a learner that passes its checks and is never promoted. The status
/// reports that, with the time at which the Machine is replaced, and the fifth joins beside it. The learner leaves
/// etcd before its Machine is released. Then the stopped etcdadm goes on, the bootstrap commands run again, and the
/// machine reboots: the member stays out.
pub(crate) async fn a_learner(bed: &mut Bed) -> Result<()> {
    let manifests = checked(Manifests::new("stuck-learner", "demo")?, PATIENT).with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"]["startupGraceSeconds"] = json!(GRACE);
        etcd["spec"]["etcdadmConfigSpec"]["preEtcdadmCommands"] = json!([stands_still(DOOMED)]);
    });
    let handle = alone(bed, manifests).await?;
    let old = handle.etcd_machines().await?;
    let load = LowLoad::begin(bed, &handle).await?;
    wanted(&handle, 5).await?;
    let learner = until(format!("{DOOMED} learns, and answers"), PATIENCE, async || {
        let members = handle.status().await?.members;
        let is_it = |role, health| role == MemberRole::Learner && health == Health::Healthy;
        Ok(members.into_iter().find(|member| member.machine == DOOMED && is_it(member.role, member.health)))
    })
    .await?;
    let begun = Instant::now();
    // Another hook keeps the Machine, so that the scenario can check it after we have released it.
    keep(&handle, DOOMED, json!("scenario")).await?;
    let doomed = bed.machines.get(&handle.namespace, DOOMED)?;
    let message = handle.until_condition("Ready", "False", "WaitingForPromotion", PATIENCE).await?;
    println!("  {}: {message}", handle.namespace);
    let told = until("it is told when it is replaced", PATIENCE, async || {
        let mut said = handle.status().await?.conditions.into_iter().map(|condition| condition.message);
        let says =
            |said: &String| said.contains("still a learner after") && said.contains("the Machine is replaced at ");
        Ok(said.find(says))
    })
    .await?;
    ensure!(told.contains(DOOMED), "it says: {told}");

    let all = Duration::from_secs(GRACES * GRACE);
    until(format!("{DOOMED} is given up"), all + PATIENCE, async || {
        let goes = handle.api("Machine").get(DOOMED).await?.metadata.deletion_timestamp.is_some();
        let members = handle.status().await?.members;
        let votes = members.iter().any(|member| member.id == learner.id && member.role == MemberRole::Voter);
        ensure!(!votes, Broken(format!("{DOOMED} votes: it did not stand still")));
        Ok(goes.then_some(()))
    })
    .await?;
    let waited = begun.elapsed();
    println!("  {}: given up after {:.0} s", handle.namespace, waited.as_secs_f32());
    ensure!(waited >= Duration::from_secs((GRACES - 1) * GRACE), "it had {waited:?}, and {all:?} was its time");

    until_released(&handle, DOOMED, PATIENCE).await?;
    let witness = bed.machines.get(&handle.namespace, old.first().context("there is no member")?)?;
    let is_out = async || {
        let list = Membership::on(witness.clone()).await?;
        let is_in = list.members.iter().any(|member| member.id == learner.id || member.name == DOOMED);
        ensure!(!is_in, "it is a member: {list:?}");
        anyhow::Ok(())
    };
    is_out().await.context("when its Machine is let go")?;

    let stays_out = async |when: &str| {
        let end = Instant::now() + STAYS_OUT;
        while Instant::now() < end {
            is_out().await.with_context(|| when.to_owned())?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        anyhow::Ok(())
    };
    bed.fault(&format!("{DOOMED}: what stood still goes on"), &[&doomed], Silence::Lasting);
    let went_on = said(&doomed, &["sh", "-c", SEND, "CONT"]).await?;
    ensure!(!went_on.trim().is_empty(), "no etcdadm stood still");
    stays_out("after etcdadm has gone on").await?;
    let again = Host::rerun_bootstrap(&doomed, PATIENCE / 4).await?;
    let is_refused = !again.status.success() && again.status.code() != Some(TIMED_OUT);
    ensure!(is_refused, "{}: {}", again.status, String::from_utf8_lossy(&again.stderr));
    stays_out("after the bootstrap commands were run again").await?;
    Host::reboot(&doomed).await?;
    stays_out("after a reboot").await?;

    keep(&handle, DOOMED, Value::Null).await?;
    let machines = are_well(bed, &handle, 5).await?;
    let after: Vec<String> = [0, 1, 2, 4, 5].map(|number| format!("demo-etcd-{number}")).into();
    ensure!(machines == after, "the Machines are {machines:?}");
    only_theirs(bed, &handle, &machines).await?;
    load.judged().await
}
