//! Where the time of a bring-up goes, member by member: according to the API server's audit log, the machines
//! themselves, and what the observer got from etcd.

use anyhow::{Context, Result, ensure};
use e2e::bed::ClusterHandle;
use e2e::docker::DockerBed;
use e2e::observer::record::{Answer, Event, Line};
use e2e::plane::{Mark, Requests};
use e2e::until::until;
use std::time::Duration;

/// How long the observer, which polls ten times a second, may be behind.
const BEHIND: Duration = Duration::from_secs(10);

/// What each machine prints: its clock as wall time and as uptime, when systemd began, when the machine was up, when
/// the bootstrap began to run commands, and when etcdadm was done.
const ASK: &str = "date +%s.%N; cut -d' ' -f1 /proc/uptime; \
    systemctl show --value --property=UserspaceTimestampMonotonic; \
    systemctl show --value --property=ActiveEnterTimestampMonotonic multi-user.target; \
    stat -c %.Y /run/cluster-api/capd.bootstrap.started /run/cluster-api/bootstrap-success.complete";

/// The steps of a member's bring-up, in order.
const STEPS: [&str; 8] = [
    "Machine made",
    "bootstrap data made",
    "Machine refers to them",
    "container begins",
    "container is up",
    "bootstrap runs commands",
    "etcdadm is done",
    "seen as a voter",
];
/// The index of the step in which the container begins.
const BEGINS: usize = 3;

/// Prints a table: for each step and member, the seconds since `mark`, when everything was applied.
pub(super) async fn print(bed: &DockerBed, handle: &ClusterHandle, mark: Mark) -> Result<()> {
    let requests = bed.plane.requests_since(mark)?.writes().done_in(&handle.namespace);
    let begun = requests.iter().next().context("nothing was written")?.received.as_duration().as_secs_f64();
    let members = handle.member_names(3);
    let mut columns = Vec::new();
    for name in &members {
        let mut times = by_the_api_server(&requests, name);
        let own = bed.exec(name, &["sh", "-c", ASK]).await?;
        times.extend(by_the_machine(&own).with_context(|| format!("what {name} says: {own}"))?);
        let votes = until(format!("the observer has seen {name} vote"), BEHIND, async || {
            Ok(votes_since(&bed.observed_so_far()?, handle, name))
        })
        .await?;
        ensure!(votes > times[BEGINS], "{name} votes before its container begins: {votes}, after {times:?}");
        times.push(votes);
        columns.push(times);
    }
    println!("Seconds from the apply    {}", members.iter().map(|name| format!("{name:>14}")).collect::<String>());
    for (step, what) in STEPS.iter().enumerate() {
        let row = columns.iter().map(|times| format!("{:>14.1}", times[step] - begun));
        println!("  {what:<24}{}", row.collect::<String>());
    }
    Ok(())
}

/// When the Machine, its bootstrap Secret and the reference to the Secret were written.
fn by_the_api_server(requests: &Requests, name: &str) -> Vec<f64> {
    let first = |verb: &str, resource: &str, after: f64| {
        let found = requests.iter().filter(|r| r.verb == verb && r.resource == resource);
        let found = found.filter(|r| r.subresource.is_empty() && r.name == name);
        let mut times = found.map(|r| r.received.as_duration().as_secs_f64());
        times.find(|time| *time > after).unwrap_or(f64::NAN)
    };
    let data = first("create", "secrets", 0.0);
    vec![first("create", "machines", 0.0), data, first("patch", "machines", data)]
}

/// Since when the member of this Machine votes, according to the first answer of a member that lists it as a voter. The
/// EtcdCluster's status says no more about this: the last two members join side by side, and may be written down
/// together.
fn votes_since(lines: &[Line], handle: &ClusterHandle, name: &str) -> Option<f64> {
    let etcd = format!("{}/{}", handle.namespace, handle.etcd);
    let says_so = |line: &&Line| match &line.event {
        Event::Member(member) if member.etcd == etcd => match &member.answer {
            Answer::Status(status) => status.list.iter().any(|listed| listed.name == name && !listed.learner),
            Answer::Silent(_) => false,
        },
        _ => false,
    };
    lines.iter().find(says_so).map(|line| line.at.as_duration().as_secs_f64())
}

fn by_the_machine(answer: &str) -> Option<Vec<f64>> {
    let numbers: Vec<f64> = answer.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let [now, uptime, began, up, commands, done] = numbers[..] else { return None };
    let wall = |monotonic: f64| now - uptime + monotonic / 1e6;
    Some(vec![wall(began), wall(up), commands, done])
}
