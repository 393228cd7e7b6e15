//! The seats: Machines, and the members on them.

use super::Trouble;
use crate::observation::for_comparing;
use crate::snapshot::{Machine, Snapshot};
use api::conditions::MACHINES_DELETING;
use api::etcd_cluster::{Health, MemberRole, MemberStatus};
use api::{EtcdCluster, EtcdadmConfigSpec, names};
use etcd_cluster_controller::build::{certificate_expires, expires_soon, is_up_to_date, matches_config, version};
use etcd_cluster_controller::observation::{Observation, address};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// A Machine, a member, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Seat {
    /// Name of the Machine; not set for a member whose Machine is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Phase of the Machine, in Cluster API's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine_phase: String,
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its failure domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
    /// The member; not set as long as the Machine has not become one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<Member>,
    /// Whether the Machine matches the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_date: Option<bool>,
    /// What differs from the spec, as far as that is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs_in: Vec<String>,
    /// Whether the Machine is paused, and so left alone.
    pub paused: bool,
    /// Who wants it replaced, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marked: Option<String>,
    /// The deletion of the Machine, if it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleting: Option<Deleting>,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its name; empty until it has started.
    pub name: String,
    /// Its ID, in hexadecimal.
    pub id: String,
    /// Whether it votes, and whether it leads.
    pub role: Role,
    /// What is known of its health.
    pub health: Health,
    /// When its checks began to succeed, or to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Whether its checks fail, even if not for long enough yet to count as unhealthy.
    pub failing: bool,
    /// What the first failing check said, or why nothing is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// etcd version that it runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Client URL.
    #[serde(rename = "clientURL", skip_serializing_if = "String::is_empty")]
    pub client_url: String,
    /// Size of its database in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_size_bytes: Option<i64>,
}

/// What a member does in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Role {
    /// It votes, and orders the writes.
    Leader,
    /// It votes.
    Voter,
    /// It receives the data, and does not vote.
    Learner,
}

/// The progress of a Machine's deletion.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Deleting {
    /// When it began.
    pub since: Time,
    /// Pre-terminate and pre-drain hooks that keep the Machine, with their owners.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<String>,
    /// What our hook waits for; empty if it does not wait.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waits_for: String,
}

/// The prefixes of annotations that keep a Machine from being deleted.
const HOOKS: [&str; 2] = ["pre-terminate.delete.hook.machine.", "pre-drain.delete.hook.machine."];

pub(super) fn seats(snapshot: &Snapshot, troubles: &[Trouble]) -> Vec<Seat> {
    let observation = for_comparing(snapshot);
    let members: Vec<&MemberStatus> = snapshot.etcd.status.iter().flat_map(|status| &status.members).collect();
    let deleting = troubles.iter().find(|trouble| trouble.type_ == MACHINES_DELETING);
    let said = deleting.map_or("", |trouble| trouble.message.as_str());
    let of_machine = |machine: &Machine| {
        let view = &machine.view;
        let computed = || observation.machines.get(&view.name).map(|view| is_up_to_date(&observation, view));
        let up_to_date = view.up_to_date.or_else(computed);
        Seat {
            machine: Some(view.name.clone()),
            machine_phase: machine.phase.clone(),
            address: address(view, &snapshot.etcd.spec.address_types).map(str::to_owned),
            failure_domain: view.failure_domain.clone(),
            member: members.iter().find(|member| member.machine == view.name).map(|member| of_member(member)),
            differs_in: match up_to_date {
                Some(false) => differs_in(snapshot, &observation, machine),
                _ => Vec::new(),
            },
            up_to_date,
            paused: view.annotations.contains_key(names::PAUSED_ANNOTATION),
            marked: view.marked.clone(),
            deleting: view.deleted.clone().map(|since| Deleting {
                since,
                hooks: hooks(machine),
                waits_for: about(said, &view.name, snapshot),
            }),
        }
    };
    let without_machine =
        |member: &&&MemberStatus| !snapshot.machines.iter().any(|machine| machine.view.name == member.machine);
    let gone = members.iter().filter(without_machine).map(|member| Seat {
        failure_domain: Some(member.failure_domain.clone()).filter(|domain| !domain.is_empty()),
        member: Some(of_member(member)),
        ..Seat::default()
    });
    snapshot.machines.iter().map(of_machine).chain(gone).collect()
}

fn of_member(member: &MemberStatus) -> Member {
    Member {
        name: member.name.clone(),
        id: member.id.clone(),
        role: match (member.role, member.leader) {
            (MemberRole::Learner, _) => Role::Learner,
            (MemberRole::Voter, true) => Role::Leader,
            (MemberRole::Voter, false) => Role::Voter,
        },
        health: member.health,
        since: member.unhealthy_since.clone().or_else(|| member.healthy_since.clone()),
        failing: member.unhealthy_since.is_some(),
        message: member.message.clone(),
        version: member.version.clone(),
        client_url: member.client_url.clone(),
        database_size_bytes: member.database_size_bytes,
    }
}

/// The hooks that keep a Machine, such as `etcd-member (etcd-cluster-controller)`.
#[must_use]
pub(crate) fn hooks(machine: &Machine) -> Vec<String> {
    let is_hook = |key: &str| HOOKS.iter().any(|hook| key.starts_with(hook));
    let hooks = machine.view.annotations.iter().filter(|(key, _)| is_hook(key));
    hooks.map(|(key, owner)| format!("{} ({owner})", key.rsplit('/').next().unwrap_or(key))).collect()
}

/// The part of a message about one Machine. The parts have the form `Machine NAME: …`, with `; ` between them.
fn about(message: &str, name: &str, snapshot: &Snapshot) -> String {
    let Some((_, rest)) = message.split_once(&format!("Machine {name}: ")) else { return String::new() };
    let others = snapshot.machines.iter().filter(|other| other.view.name != name);
    let ends = others.flat_map(|other| {
        let next = &other.view.name;
        [rest.find(&format!("; Machine {next}: ")), rest.find(&format!("; Machine {next} was deleted"))]
    });
    let end = ends.flatten().min().unwrap_or(rest.len());
    rest[..end].to_owned()
}

/// The differences between a Machine and one that would be made now.
fn differs_in(snapshot: &Snapshot, observation: &Observation, machine: &Machine) -> Vec<String> {
    let (etcd, view) = (&snapshot.etcd, &machine.view);
    let mut found = Vec::new();
    let wanted = version(etcd).trim_start_matches('v');
    if let Some(made) = view.version.as_deref().map(|made| made.trim_start_matches('v')).filter(|m| *m != wanted) {
        found.push(format!("etcd {made}, and {wanted} is wanted"));
    }
    let template = &etcd.spec.infrastructure_template;
    let from = view.annotations.get(names::CLONED_FROM_NAME_ANNOTATION).filter(|from| **from != template.name);
    found.extend(from.map(|from| format!("infrastructure template {from}, and {} is wanted", template.name)));
    let kind = format!("{}.{}", template.kind, template.group());
    let from = view.annotations.get(names::CLONED_FROM_GROUP_KIND_ANNOTATION).filter(|from| **from != kind);
    found.extend(from.map(|from| format!("infrastructure of {from}, and {kind} is wanted")));
    let config = snapshot.configs.get(&view.name);
    found.extend(config.and_then(|config| fields(etcd, config)).map(|fields| format!("etcdadmConfigSpec: {fields}")));
    let after = etcd.spec.rollout_after.as_ref().filter(|after| after.0 <= snapshot.now);
    let before = after.filter(|after| view.created.as_ref().is_some_and(|created| created.0 < after.0));
    found.extend(before.map(|_| "made before spec.rolloutAfter".to_owned()));
    let expires = certificate_expires(etcd, &view.name).filter(|_| expires_soon(observation, view));
    found.extend(expires.map(|expires| format!("its certificate expires at {expires:.0}")));
    found
}

/// The names of the config's fields that differ, except for the version.
fn fields(etcd: &EtcdCluster, config: &EtcdadmConfigSpec) -> Option<String> {
    let wanted = &etcd.spec.etcdadm_config_spec;
    let same_version = EtcdadmConfigSpec { version: Some(version(etcd).to_owned()), ..config.clone() };
    if matches_config(etcd, &same_version, None) {
        return None;
    }
    let fields = |config: &EtcdadmConfigSpec| match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (made, wanted) = (fields(config), fields(wanted));
    let names: BTreeSet<&String> = made.keys().chain(wanted.keys()).collect();
    let differing = names.into_iter().filter(|name| *name != "version" && made.get(*name) != wanted.get(*name));
    Some(differing.map(String::as_str).collect::<Vec<_>>().join(", "))
}
