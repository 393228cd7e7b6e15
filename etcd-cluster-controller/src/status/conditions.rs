//! Conditions of an EtcdCluster: one small function each.

use super::is_well;
use crate::observation::{Certificates, Observation};
use crate::plan::{Plan, Step};
use api::conditions::{self as c, Draft, reasons, settle};
use api::etcd_cluster::{EtcdClusterStatus, MemberRole, MemberStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub(super) fn conditions(
    seen: &Observation,
    plan: &Plan,
    status: &EtcdClusterStatus,
    before: &[Condition],
) -> Vec<Condition> {
    let drafts = vec![
        ready(plan, status),
        available(status),
        initialized(status),
        certificates(seen, plan),
        members_healthy(status),
        endpoints(status),
        scaling_up(seen, plan, status),
        up_to_date(status),
        paused(plan),
        deleting(seen, plan),
    ];
    settle(before, drafts, seen.etcd.metadata.generation, &Time(seen.now))
}

/// What the plan waits for, in the words of a condition.
fn what(plan: &Plan) -> (&'static str, String) {
    match plan {
        Plan::Wait(reason) | Plan::Block(reason) => (reason.reason, reason.message.clone()),
        Plan::Do(Step::CreateMachine { name, .. }) => (reasons::SCALING_UP, format!("creating Machine {name}")),
        Plan::Do(Step::Admit { name, .. }) => (reasons::SCALING_UP, format!("admitting Machine {name}")),
        Plan::Do(Step::DeleteHeldBack { name, .. }) => {
            (reasons::SCALING_UP, format!("deleting Machine {name}, to make it again from the present spec"))
        }
        Plan::Do(Step::AddFinalizer | Step::EnsureCertificates { .. }) => {
            (reasons::WAITING_FOR_CERTIFICATES, "making the certificates".to_owned())
        }
        Plan::Do(Step::PublishInit { .. }) => (reasons::SCALING_UP, "publishing where to join".to_owned()),
        Plan::Do(Step::SetProviderId { machine, .. }) => {
            (reasons::SCALING_UP, format!("telling Cluster API that Machine {machine} is provisioned"))
        }
        Plan::Do(Step::DeleteMachines { names }) => {
            (reasons::DELETING, format!("deleting Machines {}", names.join(", ")))
        }
        Plan::Do(Step::RemoveFinalizer) => (reasons::DELETING, String::new()),
        Plan::Steady => (reasons::READY, String::new()),
    }
}

fn ready(plan: &Plan, status: &EtcdClusterStatus) -> Draft {
    if status.ready {
        return Draft::new(c::READY, true, reasons::READY, "");
    }
    match plan {
        Plan::Steady => Draft::new(c::READY, false, reasons::MEMBER_UNHEALTHY, unhealthy(&status.members)),
        _ => {
            let (reason, message) = what(plan);
            Draft::new(c::READY, false, reason, message)
        }
    }
}

fn available(status: &EtcdClusterStatus) -> Draft {
    let voters = status.members.iter().filter(|member| member.role == MemberRole::Voter);
    let (count, well) = voters.fold((0, 0), |(count, well), m| (count + 1, well + usize::from(is_well(m))));
    if !status.initialized {
        return Draft::new(c::AVAILABLE, false, reasons::NOT_INITIALIZED, "");
    }
    if count == 0 {
        return Draft::unknown(c::AVAILABLE, reasons::MEMBERSHIP_UNKNOWN, "the member list has not been read yet");
    }
    if well > count / 2 {
        return Draft::new(c::AVAILABLE, true, reasons::AVAILABLE, "");
    }
    let message = format!(
        "{well} of {count} voters answer, a quorum is {}: {}. Nothing is removed; if all are well, look at the network between them and this controller",
        count / 2 + 1,
        unhealthy(&status.members)
    );
    Draft::new(c::AVAILABLE, false, reasons::QUORUM_LOST, message)
}

fn initialized(status: &EtcdClusterStatus) -> Draft {
    if status.initialized {
        Draft::new(c::INITIALIZED, true, reasons::INITIALIZED, "")
    } else {
        Draft::new(c::INITIALIZED, false, reasons::NOT_INITIALIZED, "the first member has not come up yet")
    }
}

fn certificates(seen: &Observation, plan: &Plan) -> Draft {
    match (&seen.certificates, plan) {
        (Certificates::Ca { control_plane_ca: true, staged_client: true }, _) => {
            Draft::new(c::CERTIFICATES_AVAILABLE, true, reasons::CERTIFICATES_AVAILABLE, "")
        }
        (_, Plan::Block(reason)) if reason.reason == reasons::SECRET_INVALID => {
            Draft::new(c::CERTIFICATES_AVAILABLE, false, reason.reason, reason.message.clone())
        }
        _ => Draft::new(c::CERTIFICATES_AVAILABLE, false, reasons::WAITING_FOR_CERTIFICATES, ""),
    }
}

fn members_healthy(status: &EtcdClusterStatus) -> Draft {
    let message = unhealthy(&status.members);
    if status.members.is_empty() {
        Draft::unknown(c::MEMBERS_HEALTHY, reasons::NOT_INITIALIZED, "there is no member yet")
    } else if message.is_empty() {
        Draft::new(c::MEMBERS_HEALTHY, true, reasons::MEMBERS_HEALTHY, "")
    } else {
        Draft::new(c::MEMBERS_HEALTHY, false, reasons::MEMBER_UNHEALTHY, message)
    }
}

/// Every member that fails, and how. Also those that still count as healthy: a person wants to know early.
fn unhealthy(members: &[MemberStatus]) -> String {
    let failing = members.iter().filter(|member| member.unhealthy_since.is_some()).map(|member| {
        let name = if member.name.is_empty() { &member.id } else { &member.name };
        format!("{name}: {}", member.message)
    });
    failing.collect::<Vec<_>>().join("; ")
}

fn endpoints(status: &EtcdClusterStatus) -> Draft {
    if status.endpoints.is_empty() {
        Draft::new(c::ENDPOINTS_AVAILABLE, false, reasons::NO_ENDPOINTS, "")
    } else {
        Draft::new(c::ENDPOINTS_AVAILABLE, true, reasons::ENDPOINTS_AVAILABLE, "")
    }
}

fn scaling_up(seen: &Observation, plan: &Plan, status: &EtcdClusterStatus) -> Draft {
    let wanted = seen.etcd.spec.replicas;
    if status.replicas >= wanted && status.members.len() >= usize::try_from(wanted).unwrap_or(0) {
        return Draft::new(c::SCALING_UP, false, reasons::NOT_SCALING_UP, "");
    }
    let (reason, message) = what(plan);
    let count = format!("{} of {wanted} members are voters", status.ready_replicas);
    let message = if message.is_empty() { count } else { format!("{count}: {message}") };
    Draft::new(c::SCALING_UP, true, reason, message)
}

fn up_to_date(status: &EtcdClusterStatus) -> Draft {
    let old = status.replicas - status.updated_replicas;
    if old == 0 {
        return Draft::new(c::MACHINES_UP_TO_DATE, true, reasons::UP_TO_DATE, "");
    }
    let message = format!(
        "{old} of {} Machines are made from an earlier spec and keep it: a change reaches new members only",
        status.replicas
    );
    Draft::new(c::MACHINES_UP_TO_DATE, false, reasons::MADE_FROM_AN_EARLIER_SPEC, message)
}

fn paused(plan: &Plan) -> Draft {
    match plan {
        Plan::Wait(reason) if reason.reason == reasons::PAUSED => {
            Draft::new(c::PAUSED, true, reasons::PAUSED, reason.message.clone())
        }
        _ => Draft::new(c::PAUSED, false, reasons::NOT_PAUSED, ""),
    }
}

fn deleting(seen: &Observation, plan: &Plan) -> Draft {
    if seen.etcd.metadata.deletion_timestamp.is_none() {
        return Draft::new(c::DELETING, false, reasons::NOT_DELETING, "");
    }
    Draft::new(c::DELETING, true, reasons::DELETING, what(plan).1)
}
