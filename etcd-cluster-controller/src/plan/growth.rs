//! Adding members, one at a time. Machines are made as soon as they are wanted, and held back: what Cluster API and the
//! infrastructure do before a machine can boot takes longer than an etcd member does to join. One is admitted when every
//! voter is healthy and no other Machine is on its way.

use super::{Plan, Step, block, has_begun, init, wait};
use crate::build;
use crate::observation::{Check, Membership, Observation, Template, hex};
use api::conditions::reasons;
use api::names;
use controller_support::loose::{ClusterView, MachineView};
use kube::ResourceExt;
use std::collections::BTreeSet;

/// How far a Machine is on its way to being a healthy voter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    Voter,
    HeldBack,
    NoAddress,
    NoMember,
    Learner,
    Unhealthy,
    /// It answers, and the member list cannot be read.
    NotListed,
    /// Its grace is over, and etcd has never heard of it: it holds nobody up any more.
    NotBooting,
}

/// All live Machines with their progress.
struct Machines<'a>(Vec<(&'a MachineView, Progress)>);

impl<'a> Machines<'a> {
    fn names(&self, wanted: &Progress) -> Vec<&'a str> {
        self.0.iter().filter(|(_, state)| state == wanted).map(|(machine, _)| machine.name.as_str()).collect()
    }

    fn find(&self, wanted: &[Progress]) -> Option<&(&'a MachineView, Progress)> {
        self.0.iter().find(|(_, state)| wanted.contains(state))
    }
}

/// Decides on the next Machine and the next member.
pub(super) fn plan(seen: &Observation, cluster: &ClusterView) -> Plan {
    let wanted = usize::try_from(seen.etcd.spec.replicas).unwrap_or(0);
    let machines = Machines(seen.live_machines().map(|machine| (machine, progress(seen, machine))).collect());
    for state in [Progress::Unhealthy, Progress::NotListed] {
        if let Some((machine, state)) = machines.find(&[state]) {
            return waiting_for(seen, cluster, machine, state);
        }
    }
    if let Some(stranger) = stranger(seen) {
        return wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, stranger);
    }
    if let Some(machine) = to_make_again(seen, &machines) {
        return Plan::Do(Step::DeleteHeldBack { cluster: cluster.name.clone(), name: machine.name.clone() });
    }
    let coming = machines.find(&[Progress::NoAddress, Progress::NoMember, Progress::Learner]);
    let coming = coming.map(|(machine, state)| waiting_for(seen, cluster, machine, state));
    let (held_back, stuck) = (machines.find(&[Progress::HeldBack]), machines.names(&Progress::NotBooting));
    let missing = machines.0.len() < wanted;
    if !missing && held_back.is_none() {
        return coming.unwrap_or_else(|| if stuck.is_empty() { Plan::Steady } else { not_booting(&stuck) });
    }
    if let Some(obstacle) = obstacle(seen, machines.names(&Progress::Voter).len(), &stuck) {
        return coming.unwrap_or(obstacle);
    }
    let begun = has_begun(seen);
    match held_back {
        Some((next, _)) if coming.is_none() && begun => Plan::Do(Step::Admit {
            cluster: cluster.name.clone(),
            name: next.name.clone(),
            admitted: init::with(seen, next),
        }),
        // The others come when it is settled which Machine initializes.
        _ if missing && (begun || machines.0.is_empty() || machines.0.iter().any(|(m, _)| seen.is_admitted(m))) => {
            create(seen, cluster, coming)
        }
        _ => coming.unwrap_or(Plan::Steady),
    }
}

/// A Machine that has not been let go, and would boot by an earlier spec: nothing is lost with it. It stays where what it is
/// made from is not there, or where it is not known who is admitted.
fn to_make_again<'a>(seen: &Observation, machines: &Machines<'a>) -> Option<&'a MachineView> {
    if !matches!(seen.template, Template::Found { .. }) || (has_begun(seen) && seen.init_version.is_none()) {
        return None;
    }
    let present = build::spec_hash(&seen.etcd);
    let waits = [Progress::HeldBack, Progress::NoAddress, Progress::NoMember];
    let waiting = machines.0.iter().filter(|(machine, state)| waits.contains(state) && !seen.is_admitted(machine));
    let mut earlier = waiting.filter(|(machine, _)| {
        machine.annotations.get(names::SPEC_HASH_ANNOTATION).is_some_and(|hash| *hash != present)
    });
    earlier.next().map(|(machine, _)| *machine)
}

/// Why nothing can be added at all at the moment, neither Machine nor member. With a voter the member list is known.
fn obstacle(seen: &Observation, voters: usize, stuck: &[&str]) -> Option<Plan> {
    if let Some(leaving) = seen.machines.values().find(|machine| machine.deleting) {
        return Some(wait(reasons::DELETING, format!("Machine {} is being deleted", leaving.name)));
    }
    if voters == 0 && has_begun(seen) {
        return Some(block(
            reasons::QUORUM_LOST,
            "the Machine of every member is gone, and the data with them; nothing new is made in their place. Delete the EtcdCluster to begin anew",
        ));
    }
    // Only the first member makes the cluster: without it there is nothing to join.
    (voters == 0 && !stuck.is_empty()).then(|| not_booting(stuck))
}

/// Makes the next Machine. Without a template, those that are on their way are waited for first.
fn create(seen: &Observation, cluster: &ClusterView, coming: Option<Plan>) -> Plan {
    match &seen.template {
        Template::NotFound(message) => block(reasons::TEMPLATE_NOT_FOUND, message),
        Template::Unknown(message) => coming.unwrap_or_else(|| wait(reasons::TEMPLATE_NOT_FOUND, message)),
        Template::Found { .. } => Plan::Do(Step::CreateMachine {
            cluster: cluster.name.clone(),
            name: next_name(seen),
            seen: seen.machines.keys().cloned().collect(),
        }),
    }
}

/// Only a Machine that was let go can be late: one that is held back may be as old as it likes.
fn is_late(seen: &Observation, machine: &MachineView) -> bool {
    seen.is_admitted(machine) && seen.age(machine) >= i64::from(seen.etcd.spec.health_check.startup_grace_seconds)
}

fn progress(seen: &Observation, machine: &MachineView) -> Progress {
    match seen.member_on(&machine.name) {
        Some((_, member)) if member.learner => Progress::Learner,
        Some(_) if seen.is_healthy(&machine.name) => Progress::Voter,
        Some(_) => Progress::Unhealthy,
        // Nothing is known of the members: a Machine that the status has as one is one.
        None if seen.members().is_none() && is_recorded(seen, machine) => match seen.membership {
            Membership::Unknown(_) if !fails(seen, machine) => Progress::NotListed,
            _ => Progress::Unhealthy,
        },
        None if is_held_back(seen, machine) => Progress::HeldBack,
        None if is_late(seen, machine) => Progress::NotBooting,
        None if seen.address(machine).is_none() => Progress::NoAddress,
        None => Progress::NoMember,
    }
}

/// Whether it is another Machine's turn. Before there is a cluster, one initializes it: the one that has its data, by the
/// bootstrap provider's choice, or the first that is there to choose from.
fn is_held_back(seen: &Observation, machine: &MachineView) -> bool {
    if seen.is_admitted(machine) {
        return false;
    }
    let first = seen.live_machines().find(|other| seen.is_admitted(other)).or_else(|| seen.live_machines().next());
    has_begun(seen) || first.is_some_and(|first| first.name != machine.name)
}

fn is_recorded(seen: &Observation, machine: &MachineView) -> bool {
    seen.last_on(machine).is_some()
}

/// Whether the health check of a recorded member has failed, or another member has answered it. Where none was made, it has
/// not.
fn fails(seen: &Observation, machine: &MachineView) -> bool {
    match seen.checks.get(&machine.name) {
        Some(Check::Healthy { report }) => {
            seen.last_on(machine).is_some_and(|member| member.id != hex(report.member_id))
        }
        Some(Check::Failing(_)) => true,
        Some(Check::NoAddress) | None => false,
    }
}

/// A member that no Machine of ours carries: it may be the one that a quorum hangs on, so nothing is added beside it.
fn stranger(seen: &Observation) -> Option<String> {
    let members = seen.members()?;
    members.iter().find(|(id, member)| seen.machine_of(**id, member).is_none()).map(|(id, member)| {
        format!("member {} ({}) runs on no Machine of this cluster", hex(*id), member.peer_urls.join(","))
    })
}

fn waiting_for(seen: &Observation, cluster: &ClusterView, machine: &MachineView, state: &Progress) -> Plan {
    let name = &machine.name;
    match state {
        // Machines are made without waiting for it, as Cluster API's MachineSets do: the rest of their way runs beside.
        Progress::NoAddress if !cluster.infrastructure_ready => {
            let message = format!("the infrastructure of Cluster {} is not provisioned yet", cluster.name);
            wait(reasons::WAITING_FOR_CLUSTER_INFRASTRUCTURE, message)
        }
        Progress::NoAddress => wait(reasons::WAITING_FOR_MACHINE_ADDRESS, format!("Machine {name} has no address yet")),
        Progress::NoMember => wait(reasons::WAITING_FOR_MEMBER, format!("Machine {name} is no member yet")),
        // etcd allows few learners at a time, so the next Machine has to wait for this one.
        Progress::Learner if is_late(seen, machine) => {
            let message = format!(
                "member {name} is still a learner, beyond spec.healthCheck.startupGraceSeconds; look at the console of its Machine"
            );
            wait(reasons::WAITING_FOR_PROMOTION, message)
        }
        Progress::Learner => wait(reasons::WAITING_FOR_PROMOTION, format!("member {name} is a learner")),
        Progress::NotListed => {
            let why = if let Membership::Unknown(why) = &seen.membership { why } else { "" };
            wait(reasons::MEMBERSHIP_UNKNOWN, format!("the member list cannot be read: {why}"))
        }
        Progress::Unhealthy | Progress::Voter | Progress::HeldBack | Progress::NotBooting => {
            wait(reasons::WAITING_FOR_HEALTHY_MEMBERS, format!("member {name} fails its health check"))
        }
    }
}

fn not_booting(names: &[&str]) -> Plan {
    let message = format!(
        "Machine {} has not become a member within spec.healthCheck.startupGraceSeconds; look at its console and at the Machine's conditions",
        names.join(", ")
    );
    wait(reasons::MACHINE_NOT_BOOTING, message)
}

/// The first free name, in the order of their numbers. Members count too: one may be left without its Machine.
fn next_name(seen: &Observation) -> String {
    let mut taken: BTreeSet<&str> = seen.machines.keys().map(String::as_str).collect();
    taken.extend(seen.members().into_iter().flatten().map(|(_, member)| member.name.as_str()));
    let base = seen.etcd.name_any();
    (0..).map(|number| format!("{base}-{number}")).find(|name| !taken.contains(name.as_str())).unwrap_or(base)
}
