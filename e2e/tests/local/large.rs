//! A large database. The leader sends all of it to each new member, so new members join one after the other.

use crate::bring_up::PATIENCE;
use crate::departures::only_theirs;
use crate::ill::{PATIENT, STALL, checked};
use crate::shrinks::{alone, are_well, wanted};
use anyhow::{Result, ensure};
use e2e::bed::data::{Keys, said};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::history::objects::{ObjectLoad, ObjectWriters};
use e2e::observer::record::{Answer, Event, Line};
use e2e::plane::workload::WorkloadApiServer;
use e2e::until::until;
use std::collections::BTreeSet;
use std::time::Duration;

/// With more than this, members join one at a time.
const LARGE: i64 = 100 << 20;
/// How many values of a megabyte are written: enough for the status, which reports only changes by a tenth.
const VALUES: usize = 120;
/// Writes the values whose numbers it reads from its input.
const FILL: &str = r#"xargs -P 2 -I {} sh -c '
    head -c 1000000 /dev/zero | tr "\0" x | /opt/bin/etcdctl.sh put /filler/{} --command-timeout=20s > /dev/null
'"#;
/// Counts the keys of these values.
const COUNT: [&str; 6] = ["/opt/bin/etcdctl.sh", "get", "/filler/", "--prefix", "--count-only", "--write-out=fields"];

/// A few requests per second through an API server. The judge does not see them, because it requires a database that
/// was empty.
const LOAD: ObjectLoad = ObjectLoad { writers: 2, rest: Duration::from_millis(100) };
/// The fewest acknowledged writes that prove something.
const WRITES: usize = 30;

/// From three members to five: according to the members' own answers, ten times a second, there is never more than one
/// learner. With a small database, both would join side by side. In the end, all five have everything, and an API
/// server has lost nothing meanwhile.
pub(crate) async fn members_join_one_by_one(bed: &mut Bed) -> Result<()> {
    let handle = alone(bed, checked(Manifests::new("large", "demo")?, PATIENT)).await?;
    let old = handle.etcd_machines().await?;
    let first = bed.machines.get(&handle.namespace, &old[0])?;
    let mut keys = Keys::default();
    keys.write(&first, 20).await?;
    said(&first, &["sh", "-c", &format!("seq {VALUES} | {FILL}")]).await?;
    all_are_large(&handle).await?;
    let server = WorkloadApiServer::start(bed.world(), &handle.staged_etcd_access().await?).await?;
    bed.observe_api_server(&format!("{}/{}", handle.namespace, handle.cluster), &server);
    let writers = ObjectWriters::begin(&server.kubeconfig, "kube-system", LOAD).await?;

    let begun = bed.observed_so_far()?.len();
    wanted(&handle, 5).await?;
    let machines = are_well(bed, &handle, 5).await?;
    ensure!(old.iter().all(|name| machines.contains(name)), "of {old:?} there are {machines:?}");
    let seen = bed.observed_so_far()?;
    let learners: Vec<BTreeSet<&str>> = seen[begun..].iter().filter_map(|line| listed(line, &handle)).collect();
    let all: BTreeSet<&str> = learners.iter().flatten().copied().collect();
    ensure!(all.len() == 2, "two were to learn, seen were {all:?}");
    let most = learners.iter().map(BTreeSet::len).max().unwrap_or_default();
    ensure!(most == 1, "{most} learned side by side: {learners:?}");
    let record = writers.end().await?;
    let figures = record.figures();
    println!("  {}: {figures}", handle.namespace);
    record.check()?;
    ensure!(figures.writes >= WRITES && figures.failed == 0 && figures.longest_stall <= STALL, "{figures}");

    all_are_large(&handle).await?;
    let expected = format!("\"Count\" : {VALUES}");
    for name in &machines {
        let machine = bed.machines.get(&handle.namespace, name)?;
        keys.are_all_on(&machine).await?;
        let counted = said(&machine, &COUNT).await?;
        ensure!(counted.lines().any(|line| line == expected), "{name} has {counted}");
    }
    only_theirs(bed, &handle, &machines).await
}

/// Waits until the status shows a large database for each member.
async fn all_are_large(handle: &ClusterHandle) -> Result<()> {
    until("it is told that every database is large", PATIENCE, async || {
        let members = handle.status().await?.members;
        let small = members.iter().find(|member| member.database_size_bytes.is_none_or(|size| size <= LARGE));
        ensure!(small.is_none(), "{small:?}");
        Ok(Some(()))
    })
    .await
}

/// IDs of the learners on a member's list, if this line is the answer of a member of this cluster.
fn listed<'a>(line: &'a Line, handle: &ClusterHandle) -> Option<BTreeSet<&'a str>> {
    let Event::Member(member) = &line.event else { return None };
    let Answer::Status(status) = &member.answer else { return None };
    let is_it = member.etcd == format!("{}/{}", handle.namespace, handle.etcd);
    let ids = status.list.iter().filter(|member| member.learner).map(|member| member.id.as_str());
    is_it.then(|| ids.collect())
}
