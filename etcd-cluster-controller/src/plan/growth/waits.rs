//! Messages about what growth waits for: which Machine, how its member answers, since when, and what happens next.

use super::{Machines, Progress, is_late, missing_since};
use crate::observation::{Observation, Probe};
use crate::plan::{Plan, View, block, repair, stuck, wait};
use crate::roster::{Seat, Verdict};
use api::conditions::reasons;
use api::names;
use controller_support::external::{ClusterView, MachineView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

pub(super) fn waiting_for(
    view: &View<'_>,
    cluster: &ClusterView,
    seat: &Seat<'_>,
    machine: &MachineView,
    state: Progress,
) -> Plan {
    let (name, observation) = (&machine.name, view.observation);
    let until = end_of_running_grace(observation, machine);
    let deadline =
        until.map(|until| format!("; if this is still so at {until:.0}, the reason becomes MachineNotBooting"));
    let deadline = deadline.unwrap_or_default();
    match state {
        Progress::NoAddress if !cluster.infrastructure_ready => waiting_for_infrastructure(cluster),
        Progress::NoAddress => {
            let created = machine.created.as_ref().map(|at| format!(" (it was created at {:.0})", at.0));
            let created = created.unwrap_or_default();
            let message = format!("Machine {name} has no address yet{created}; look at its conditions{deadline}");
            wait(reasons::WAITING_FOR_MACHINE_ADDRESS, message)
        }
        Progress::NoMember => {
            let message = format!("Machine {name} is not a member yet{}{deadline}", answer(observation, seat));
            wait(reasons::WAITING_FOR_MEMBER, message)
        }
        Progress::Missing => {
            let (id, since) = missing_since(observation, machine).unwrap_or_default();
            let message = format!(
                "member {id} of Machine {name} has been missing from etcd's member list since {since:.0}, and this controller did not remove it. Delete Machine {name} to have it replaced{}",
                stuck::then(view, seat, machine)
            );
            wait(reasons::MEMBER_MISSING, message)
        }
        // The next Machine has to wait for this one.
        Progress::Learner if is_late(observation, machine) => {
            let message = format!(
                "{}. No other is added before this learner votes; look at the console of the Machine{}",
                late(observation, seat, machine, "its member is still a learner after"),
                stuck::then(view, seat, machine)
            );
            wait(reasons::WAITING_FOR_PROMOTION, message)
        }
        Progress::Learner => {
            let then = until
                .map(|until| format!("; if it is still a learner at {until:.0}, look at the console of its Machine"));
            let since = observation.could_boot_since(machine);
            let since = since.map(|since| format!(" (its Machine could boot at {since:.0})")).unwrap_or_default();
            let message = format!("member {name} is a learner{since}{}", then.unwrap_or_default());
            wait(reasons::WAITING_FOR_PROMOTION, message)
        }
        Progress::NotListed => {
            let silent = view.roster.silent_since();
            let message = format!(
                "the member list cannot be read: {}{}. Nothing is added before it can be read",
                observation.why_not_listed(),
                silent.map(|since| format!(" (no voter has answered its checks since {since:.0})")).unwrap_or_default()
            );
            wait(reasons::MEMBERSHIP_UNKNOWN, message)
        }
        Progress::NotHealthy if matches!(seat.verdict, Verdict::Unknown { .. }) => {
            let gone = seat.machine.map(|machine| format!("; if its machine is gone, delete Machine {}", machine.name));
            let message = format!(
                "the health of member {} is not known: {}. Nothing is added before it is healthy{}",
                seat.name(),
                seat.why_since(),
                gone.unwrap_or_default()
            );
            wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, message)
        }
        Progress::NotHealthy
        | Progress::Voter
        | Progress::HeldBack
        | Progress::NotBooting
        | Progress::Leaving
        | Progress::GivenUp
        | Progress::Left => {
            let hint = repair::why_not(view, seat).map(|why| format!("; {why}")).unwrap_or_default();
            let message = format!("member {}. Nothing is added before it is healthy{hint}", seat.describe());
            wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, message)
        }
    }
}

/// How long after its EtcdCluster a template may be created without a warning. Both are often in one file, in this
/// order, and `kubectl apply` sends a request for each.
const APPLIED_TOGETHER: SignedDuration = SignedDuration::from_secs(10);

/// The answer if there is no template: a person has to create it, unless the EtcdCluster has just been created.
pub(super) fn without_template(observation: &Observation, message: &str) -> Plan {
    let created = observation.etcd.metadata.creation_timestamp.as_ref();
    let age = created.map(|created| observation.now.duration_since(created.0));
    match age.filter(|age| !age.is_negative() && *age < APPLIED_TOGETHER) {
        Some(age) => wait(reasons::WAITING_FOR_TEMPLATE, message).again((APPLIED_TOGETHER - age).unsigned_abs()),
        None => block(reasons::TEMPLATE_NOT_FOUND, message),
    }
}

pub(super) fn waiting_for_infrastructure(cluster: &ClusterView) -> Plan {
    let created = cluster.created.as_ref().map(|at| format!(" (the Cluster was created at {:.0})", at.0));
    let next = match &cluster.infrastructure {
        Some(infrastructure) => format!("look at the conditions of {infrastructure}"),
        None => "spec.infrastructureRef of the Cluster is not set yet".to_owned(),
    };
    let message = format!(
        "the infrastructure of Cluster {} is not provisioned yet{}: {next}",
        cluster.name,
        created.unwrap_or_default()
    );
    wait(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, message)
}

pub(super) fn waiting_for_a_person(machine: &MachineView) -> Plan {
    let message = format!(
        "Machine {} was made from an earlier spec and is paused: it is made again once it no longer has the annotation {}",
        machine.name,
        names::PAUSED_ANNOTATION
    );
    wait(reasons::WAITING_FOR_MEMBER, message)
}

pub(super) fn waiting_for_room(view: &View<'_>) -> Plan {
    let failed = repair::replaced(view).filter(|seat| seat.machine.is_some_and(repair::is_paused));
    let failed =
        failed.map(|seat| format!("member {}. It is not replaced while its Machine is paused: ", seat.describe()));
    let message = format!(
        "{}as many Machines as replicas are there, and with maxSurge 0 no other is made before one of them is gone",
        failed.unwrap_or_default()
    );
    wait(reasons::WAITING_FOR_SAFE_REMOVAL, message)
}

/// When a Machine's grace ends, in which it has to become a member. `None`: its grace does not run.
fn end_of_running_grace(observation: &Observation, machine: &MachineView) -> Option<Timestamp> {
    let runs = observation.is_admitted(machine) && observation.is_in_grace(machine);
    observation.end_of_grace(machine).filter(|_| runs)
}

/// The Machines whose grace is over, and that have never become members.
pub(super) fn not_booting(view: &View<'_>, machines: &Machines<'_, '_>) -> Option<Plan> {
    let stuck = machines.0.iter().filter(|(_, _, state)| *state == Progress::NotBooting);
    let one = |(seat, machine, _): &(&Seat<'_>, &MachineView, Progress)| {
        let late = late(view.observation, seat, machine, "has not become a member within");
        format!("{late}{}", stuck::then(view, seat, machine))
    };
    let stuck: Vec<String> = stuck.map(one).collect();
    (!stuck.is_empty()).then(|| {
        let message = format!(
            "{}. Look at its console and at the Machine's conditions; delete a Machine that will never boot to have another made in its place",
            stuck.join("; ")
        );
        wait(reasons::MACHINE_NOT_BOOTING, message)
    })
}

/// Since when a Machine could have booted, what has not happened within its grace, and how its member last answered.
fn late(observation: &Observation, seat: &Seat<'_>, machine: &MachineView, what: &str) -> String {
    let could_boot = observation.could_boot_since(machine).map(|since| format!("could boot at {since:.0}, and "));
    format!(
        "Machine {} {}{what} {} s (spec.healthCheck.startupGraceSeconds){}",
        machine.name,
        could_boot.unwrap_or_default(),
        observation.etcd.spec.health_check.startup_grace_seconds,
        answer(observation, seat)
    )
}

/// How the member of a Machine last answered, if it is not well; and since when, if its latest check belongs to the
/// present run.
fn answer(observation: &Observation, seat: &Seat<'_>) -> String {
    let since = |probe: &Probe| {
        let lasts = probe.run.kind_at(observation.now, observation.interval()) == probe.outcome.kind();
        lasts.then(|| format!(" (since {:.0})", probe.run.since))
    };
    match seat.why() {
        "" => String::new(),
        why => format!(": {why}{}", seat.probe.and_then(since).unwrap_or_default()),
    }
}
