//! What growth waits for, in words: which Machine, how its member answers, since when, and what happens next.

use super::{Machines, Progress, is_late, missing_since};
use crate::observation::Observation;
use crate::plan::{Plan, View, wait};
use crate::roster::{Seat, Verdict};
use api::conditions::reasons;
use controller_support::external::{ClusterView, MachineView};

pub(super) fn waiting_for(
    view: &View<'_>,
    cluster: &ClusterView,
    seat: &Seat<'_>,
    machine: &MachineView,
    state: Progress,
) -> Plan {
    let (name, observation) = (&machine.name, view.observation);
    let deadline = deadline(observation, machine);
    match state {
        // Machines are made without waiting for it, as Cluster API's MachineSets do: the rest of their way runs beside.
        Progress::NoAddress if !cluster.infrastructure_ready => {
            let message = format!("the infrastructure of Cluster {} is not provisioned yet", cluster.name);
            wait(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, message)
        }
        Progress::NoAddress => {
            let message = format!("Machine {name} has no address yet; look at its conditions{deadline}");
            wait(reasons::WAITING_FOR_MACHINE_ADDRESS, message)
        }
        Progress::NoMember => {
            let probe = if seat.why().is_empty() { String::new() } else { format!(" ({})", seat.why()) };
            wait(reasons::WAITING_FOR_MEMBER, format!("Machine {name} is not a member yet{probe}{deadline}"))
        }
        Progress::Missing => {
            let (id, since) = missing_since(observation, machine).unwrap_or_default();
            let message = format!(
                "member {id} of Machine {name} has been missing from etcd's member list since {since:.0}, and this controller did not remove it. Delete Machine {name} to have it replaced"
            );
            wait(reasons::MEMBER_MISSING, message)
        }
        // The next Machine has to wait for this one.
        Progress::Learner if is_late(observation, machine) => {
            let message = format!(
                "member {name} is still a learner, {}. No other is added before it votes; look at the console of its Machine",
                late(observation, seat, machine)
            );
            wait(reasons::WAITING_FOR_PROMOTION, message)
        }
        Progress::Learner => wait(reasons::WAITING_FOR_PROMOTION, format!("member {name} is a learner{deadline}")),
        Progress::NotListed => {
            let message = format!("the member list cannot be read: {}", observation.why_not_listed());
            wait(reasons::MEMBERSHIP_UNKNOWN, message)
        }
        Progress::NotHealthy if matches!(seat.verdict, Verdict::Unknown { .. }) => {
            let message = format!("it is not known how member {} is: {}", seat.name(), seat.why());
            wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, message)
        }
        Progress::NotHealthy | Progress::Voter | Progress::HeldBack | Progress::NotBooting | Progress::Leaving => {
            let message = format!("member {}. Nothing is added before it is healthy", seat.describe());
            wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, message)
        }
    }
}

/// Until when a Machine has to become a member, for messages.
fn deadline(observation: &Observation, machine: &MachineView) -> String {
    let runs = observation.is_admitted(machine) && observation.is_in_grace(machine);
    let until = observation.end_of_grace(machine).filter(|_| runs);
    until.map(|until| format!("; it is reported if that lasts until {until:.0}")).unwrap_or_default()
}

/// The Machines whose grace is over, and that etcd has never heard of.
pub(super) fn not_booting(view: &View<'_>, machines: &Machines<'_, '_>) -> Option<Plan> {
    let stuck = machines.0.iter().filter(|(_, _, state)| *state == Progress::NotBooting);
    let one = |(seat, machine, _): &(&Seat<'_>, &MachineView, Progress)| {
        format!("Machine {} has not become a member, {}", machine.name, late(view.observation, seat, machine))
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

/// Since when a Machine could have booted, and how its member has answered lately.
fn late(observation: &Observation, seat: &Seat<'_>, machine: &MachineView) -> String {
    let could_boot =
        observation.could_boot_since(machine).map(|since| format!("although it could boot since {since:.0}, "));
    let since = |probe: &crate::observation::Probe| format!(" (since {:.0})", probe.run.since);
    let probe = match seat.why() {
        "" => String::new(),
        why => format!(": {why}{}", seat.probe.map(since).unwrap_or_default()),
    };
    format!("{}beyond spec.healthCheck.startupGraceSeconds{probe}", could_boot.unwrap_or_default())
}
