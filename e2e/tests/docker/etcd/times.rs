//! Where the time of a bring-up goes, member by member: by the API server's account, and by the machines' own.

use anyhow::{Context, Result};
use api::names;
use e2e::bed::ClusterHandle;
use e2e::docker::DockerBed;
use e2e::plane::{Mark, Requests};

/// What a machine is asked: its clock in two forms, when systemd began, when it was up, when the bootstrap began to run
/// commands, and when etcdadm was done.
const ASK: &str = "date +%s.%N; cut -d' ' -f1 /proc/uptime; \
    systemctl show --value --property=UserspaceTimestampMonotonic; \
    systemctl show --value --property=ActiveEnterTimestampMonotonic multi-user.target; \
    stat -c %.Y /run/cluster-api/capd.bootstrap.started /run/cluster-api/bootstrap-success.complete";

/// The steps of a member's way, in their order.
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

/// Prints a table: for each step and member, the seconds since `mark`, when everything was applied.
pub(super) async fn print(bed: &DockerBed, handle: &ClusterHandle, mark: Mark) -> Result<()> {
    let requests = bed.plane.requests_since(mark)?.writes().done_in(&handle.namespace);
    let begun = requests.iter().next().context("nothing was written")?.received.as_duration().as_secs_f64();
    let members = handle.member_names(3);
    let mut columns = Vec::new();
    for (index, name) in members.iter().enumerate() {
        let mut times = by_the_api_server(&requests, handle, index, name);
        let own = bed.exec(name, &["sh", "-c", ASK]).await?;
        times.splice(3..3, by_the_machine(&own).with_context(|| format!("what {name} says: {own}"))?);
        columns.push(times);
    }
    println!("Seconds from the apply    {}", members.iter().map(|name| format!("{name:>14}")).collect::<String>());
    for (step, what) in STEPS.iter().enumerate() {
        let row = columns.iter().map(|times| format!("{:>14.1}", times[step] - begun));
        println!("  {what:<24}{}", row.collect::<String>());
    }
    Ok(())
}

/// Machine, bootstrap Secret, reference to it, and the writes of the init Secret: one when the first is a voter, then two
/// for each member, the second of them when it is a voter.
fn by_the_api_server(requests: &Requests, handle: &ClusterHandle, index: usize, name: &str) -> Vec<f64> {
    let first = |verb: &str, resource: &str, name: &str, after: f64, nth: usize| {
        let found = requests.iter().filter(|r| (verb.is_empty() || r.verb == verb) && r.resource == resource);
        let found = found.filter(|r| r.subresource.is_empty() && r.name == name);
        let times = found.map(|r| r.received.as_duration().as_secs_f64());
        times.filter(|time| *time > after).nth(nth).unwrap_or(f64::NAN)
    };
    let data = first("create", "secrets", name, 0.0, 0);
    vec![
        first("create", "machines", name, 0.0, 0),
        data,
        first("patch", "machines", name, data, 0),
        first("", "secrets", &names::init_secret(&handle.cluster), 0.0, 2 * index),
    ]
}

fn by_the_machine(answer: &str) -> Option<Vec<f64>> {
    let numbers: Vec<f64> = answer.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let [now, uptime, began, up, commands, done] = numbers[..] else { return None };
    let wall = |monotonic: f64| now - uptime + monotonic / 1e6;
    Some(vec![wall(began), wall(up), commands, done])
}
