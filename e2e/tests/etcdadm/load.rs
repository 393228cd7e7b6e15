//! A cluster is written to all the time while its members die, freeze and are cut off. No acknowledged write is lost,
//! and no read returns old data. Then the same for a Kubernetes API server that uses it.

use crate::hands::{Person, access};
use anyhow::{Context, Result, bail, ensure};
use e2e::bed::data::{on, said, serves};
use e2e::history::objects::{ObjectLoad, ObjectWriters};
use e2e::history::record::{Outcome, Recorder};
use e2e::history::request::{PREFIX, Range, Request};
use e2e::history::response::Response;
use e2e::history::session::Session;
use e2e::history::{History, Load, MemberData};
use e2e::plane::workload::{EtcdAccess, WorkloadApiServer};
use e2e::tools::Etcd;
use e2e::until::until;
use e2e::world::World;
use futures::future::try_join_all;
use local_infrastructure::machine::Machine;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::sleep;

/// How long each fault lasts: longer than an election.
const FAULT: Duration = Duration::from_secs(3);
/// How long an election may take on a busy computer.
const ELECTION: Duration = Duration::from_secs(30);
/// Fewer acknowledged writes show little.
const WRITES: usize = 100;

/// The leader's machine dies, a follower's machine hangs, and the leader is cut off from the other members but not from
/// its clients.
pub(crate) async fn survives_faults(world: World, etcd: Etcd) -> Result<()> {
    let person = Person::with(&world, etcd)?;
    let members = try_join_all((0..3).map(|number| person.machine(number))).await?;
    person.inits(&members[0]).await?;
    for joining in &members[1..] {
        person.joins(joining, &members[0]).await?;
    }
    let access = access(&members).await?;

    let mut history = History::begin(&world, "faults", &access, Load::default()).await?;
    sleep(Duration::from_secs(1)).await;
    leader_dies(&members).await?;
    follower_hangs(&members).await?;
    let stale = leader_is_cut_off(&members, &access, &mut history).await?;
    let record = history.end().await?;
    let figures = record.figures();
    println!("  {figures}");
    ensure!(figures.writes >= WRITES, "only {} writes", figures.writes);
    let logs: Vec<MemberData> = members
        .iter()
        .map(|member| MemberData { name: member.spec().name.clone(), data: member.etcd_data() })
        .collect();
    let verdict = record.judge(&logs)?;
    println!("  {verdict}");
    ensure!(verdict.watch_events > 0 && verdict.persisted_requests > 0, "little was judged: {verdict}");

    // The member that was cut off has answered a read from its own copy. This history claims that the read was
    // linearizable.
    let mut lie = record.copy("stale-read");
    lie.add(stale);
    println!("  {}", lie.judge_finds("linearization", &logs).context("a stale read")?);
    let mut lie = record.copy("missed-change");
    let mut told = lie.watches_mut().iter_mut().flat_map(|watch| &mut watch.responses);
    told.find(|response| !response.events.is_empty()).context("no change was watched")?.events.clear();
    println!("  {}", lie.judge_finds("watch", &logs).context("a missed change")?);

    serves_kubernetes(&world, &members, &access).await?;
    members.into_iter().try_for_each(|member| Ok(member.destroy()?))
}

/// Writers of ConfigMaps, while the leader's machine dies and a follower's hangs.
async fn serves_kubernetes(world: &World, members: &[Machine], access: &EtcdAccess) -> Result<()> {
    let server = WorkloadApiServer::start(world, access).await?;
    let writers = ObjectWriters::begin(&server.kubeconfig, "kube-system", ObjectLoad::default()).await?;
    sleep(Duration::from_secs(1)).await;
    leader_dies(members).await?;
    follower_hangs(members).await?;
    let record = writers.end().await?;
    let figures = record.figures();
    println!("  ConfigMaps: {figures}");
    ensure!(figures.writes >= WRITES / 2, "only {} writes", figures.writes);
    record.check()
}

async fn leader_dies(members: &[Machine]) -> Result<()> {
    let leader = leader(members).await?;
    on(leader, Machine::kill).await?;
    sleep(FAULT).await;
    on(leader, Machine::power_on).await?;
    all_serve(members).await.context("after the leader's machine has died")
}

async fn follower_hangs(members: &[Machine]) -> Result<()> {
    let leader = leader(members).await?.address();
    let follower = members.iter().find(|member| member.address() != leader).context("no follower")?;
    on(follower, Machine::freeze).await?;
    sleep(FAULT).await;
    on(follower, Machine::thaw).await?;
    all_serve(members).await.context("after a follower's machine has hung")
}

/// Returns, apart from the history, a read that the old leader answered after a new one had acknowledged a write.
async fn leader_is_cut_off(members: &[Machine], access: &EtcdAccess, history: &mut History) -> Result<Recorder> {
    let old = leader(members).await?.clone();
    let others: Vec<Machine> = members.iter().filter(|member| member.address() != old.address()).cloned().collect();
    for other in &others {
        let address = other.address();
        on(&old, move |machine| machine.cut_off_from(address)).await?;
    }
    let new = leader(&others).await.context("the others have a leader")?;

    let endpoint = |machine: &Machine| format!("https://{}:2379", machine.address());
    let key = format!("{PREFIX}written-elsewhere");
    let (mut writer, mut session, mut number) = (history.recorder(), Session::new(access), 0);
    until("the others take a write", ELECTION, async || {
        number += 1;
        let put = Request::put(key.as_str(), format!("elsewhere-{number}"), 0);
        match writer.record(put.clone(), session.ask(&endpoint(new), &put)).await {
            Outcome::Ok(_) => Ok(Some(())),
            other => bail!("{other:?}"),
        }
    })
    .await?;
    history.add(writer);
    let mut reader = history.recorder();
    let range = Range { start: key.clone(), ..Range::default() };
    let read = reader.record(Request::get(key), session.read_own_copy(&endpoint(&old), &range)).await;
    ensure!(
        matches!(&read, Outcome::Ok(Response::Range { range, .. }) if range.keys.is_empty()),
        "the old leader has what it cannot have: {read:?}"
    );

    sleep(FAULT).await;
    on(&old, Machine::reconnect).await?;
    all_serve(members).await.context("after the leader was cut off")?;
    Ok(reader)
}

async fn all_serve(members: &[Machine]) -> Result<()> {
    try_join_all(members.iter().map(serves)).await.map(drop)
}

/// The member that considers itself the leader, and that another member considers the leader.
async fn leader(members: &[Machine]) -> Result<&Machine> {
    until("there is a leader", ELECTION, async || {
        let mut statuses = Vec::new();
        for member in members {
            statuses.extend(status(member).await.ok());
        }
        let is_led = |id: u64| statuses.iter().filter(|status| status.leader == id).count() >= 2;
        let leads = |status: &Status| status.header.member_id == status.leader && is_led(status.leader);
        let Some(position) = statuses.iter().position(leads) else { return Ok(None) };
        // All members have to have answered: otherwise, the positions are not those of the members.
        Ok((statuses.len() == members.len()).then(|| &members[position]))
    })
    .await
}

/// A member's status of itself.
#[derive(Deserialize)]
struct Status {
    header: Header,
    leader: u64,
}

#[derive(Deserialize)]
struct Header {
    member_id: u64,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Status")]
    status: Status,
}

async fn status(member: &Machine) -> Result<Status> {
    let ask = ["/opt/bin/etcdctl.sh", "endpoint", "status", "--write-out=json", "--command-timeout=2s"];
    let answers: Vec<Answer> = serde_json::from_str(&said(member, &ask).await?)?;
    Ok(answers.into_iter().next().context("no status")?.status)
}
