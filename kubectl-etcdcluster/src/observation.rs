//! The input of the controller's planner: an observation, made from the objects in the API server. Pure.
//!
//! The controller asks the members themselves. This program assumes that they would answer what the status says.

use crate::snapshot::Snapshot;
use api::conditions::{NO_ALARMS, reasons};
use api::etcd_cluster::{Health, MemberRole, MemberStatus};
use api::{EtcdCluster, names};
use controller_support::external::ClusterView;
use etcd_cluster_controller::alarms::{CORRUPT, NO_SPACE};
use etcd_cluster_controller::observation::probe::{Alarm, MemberFault, OurFault, Run};
use etcd_cluster_controller::observation::{
    Certificates, ClusterLink, Member, Membership, Observation, Outcome, Probe, Report, Template,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The observation of a snapshot, with `etcd` in place of its EtcdCluster. `template` is the one that `etcd`'s spec
/// names.
#[must_use]
pub fn observation(snapshot: &Snapshot, etcd: EtcdCluster, template: Template) -> Observation {
    let cluster = match snapshot.cluster.clone().or_else(|| unread_cluster(snapshot)) {
        Some(cluster) => ClusterLink::One(Box::new(cluster)),
        None => ClusterLink::None { message: "no Cluster names this EtcdCluster".to_owned(), living: None },
    };
    let uid = etcd.uid().unwrap_or_default();
    let status = etcd.status.clone().unwrap_or_default();
    let mut observation = Observation::new(snapshot.now, Arc::new(etcd), cluster);
    // This program reads no Secrets and assumes that they match the status once etcd has come up. So it does not know
    // when the CA expires, and assumes that it does not: CAs are valid for ten years.
    let (expires, ca_expires) = (None, Some(Timestamp::MAX));
    observation.certificates = Certificates::Ca { control_plane_ca: true, staged_client: true, expires, ca_expires };
    observation.template = template;
    observation.configs = snapshot.configs.clone();
    observation.learner_limits = snapshot.learner_limits.clone();
    observation.heard = Some(BTreeSet::new());
    for machine in &snapshot.machines {
        let (name, view) = (machine.view.name.clone(), machine.view.clone());
        if view.controller.as_ref().is_none_or(|controller| controller.uid != uid) {
            observation.not_owned.push(name);
            continue;
        }
        observation.machines.insert(name, view);
    }
    let members = status.members.iter().filter_map(|member| Some((id(member)?, member)));
    let members: BTreeMap<u64, &MemberStatus> = members.collect();
    let leader = members.iter().find(|(_, member)| member.leader).map_or(0, |(id, _)| *id);
    let cluster_id = observation.recorded_cluster_id().and_then(|id| u64::from_str_radix(id, 16).ok());
    for (id, member) in members.iter().filter(|(_, member)| !member.machine.is_empty()) {
        let outcome = outcome(*id, member, leader, cluster_id.unwrap_or_default());
        observation.probes.insert(member.machine.clone(), probe(snapshot.now, *id, member, outcome));
    }
    // Every member reports an alarm, whichever member it is about.
    if let Some(kind) = alarm(&status.conditions) {
        for probe in observation.probes.values_mut() {
            if let Outcome::Answered(report) = &mut probe.outcome {
                report.alarms = vec![Alarm { member_id: 0, kind: kind.to_owned() }];
            }
        }
    }
    let is_stranger = |member: &MemberStatus| !observation.machines.contains_key(&member.machine);
    let strangers = members.iter().filter(|(_, member)| is_stranger(member) && member.unhealthy_since.is_some());
    let fails = |member: &MemberStatus| Outcome::MemberFault(MemberFault::Closed(member.message.clone()));
    let strangers = strangers.map(|(id, member)| (*id, probe(snapshot.now, *id, member, fails(member))));
    observation.strangers = strangers.collect();
    // Nothing else says since when there has been a quorum.
    let well =
        status.members.iter().filter(|member| member.role == MemberRole::Voter && member.health == Health::Healthy);
    observation.voters_answer_since =
        well.filter_map(|member| member.healthy_since.as_ref()).map(|since| since.0).min();
    if status.initialized {
        observation.init_urls = Some(voters(&status.members));
        observation.init_cluster_id = observation.recorded_cluster_id().map(str::to_owned);
        (observation.init_version, observation.init_uid) = (Some("0".to_owned()), Some(String::new()));
        let is_in = |name: &String| status.members.iter().any(|member| member.machine == *name);
        let admitted = observation.machines.values().filter(|m| m.data_secret.is_some() || is_in(&m.name));
        observation.admitted = Some(admitted.map(|machine| (machine.uid.clone(), snapshot.now)).collect());
    }
    if let Some(cluster_id) = cluster_id.filter(|_| !members.is_empty()) {
        let members = members.into_iter().map(|(id, member)| (id, entry(member))).collect();
        observation.membership = Membership::Known { cluster_id, members, at: snapshot.now };
    }
    observation
}

/// The Cluster in the EtcdCluster's label, if Clusters may not be read. It is assumed to be healthy.
fn unread_cluster(snapshot: &Snapshot) -> Option<ClusterView> {
    let name = snapshot.etcd.labels().get(names::CLUSTER_NAME_LABEL).filter(|_| !snapshot.unread.is_empty())?;
    Some(ClusterView {
        name: name.clone(),
        namespace: snapshot.etcd.namespace().unwrap_or_default(),
        uid: String::new(),
        api_version: format!("{}/v1beta2", names::CLUSTER_GROUP),
        created: None,
        deleting: false,
        paused_by: None,
        infrastructure: None,
        infrastructure_ready: true,
        failure_domains: BTreeSet::new(),
        control_plane: None,
        etcd: None,
    })
}

/// etcd's name of the alarm that the status tells of.
fn alarm(found: &[Condition]) -> Option<&'static str> {
    let alarms = found.iter().find(|condition| condition.type_ == NO_ALARMS && condition.status == "False")?;
    match alarms.reason.as_str() {
        reasons::DATA_CORRUPT => Some(CORRUPT),
        reasons::NO_SPACE => Some(NO_SPACE),
        _ => None,
    }
}

fn id(member: &MemberStatus) -> Option<u64> {
    u64::from_str_radix(&member.id, 16).ok()
}

/// The voters as in the init Secret.
fn voters(members: &[MemberStatus]) -> String {
    let voters = members.iter().filter(|member| member.role == MemberRole::Voter);
    let mut urls: Vec<&str> = voters.map(|member| member.client_url.as_str()).filter(|url| !url.is_empty()).collect();
    urls.sort_unstable();
    urls.join(",")
}

fn entry(member: &MemberStatus) -> Member {
    let urls = |url: &String| Some(url.clone()).filter(|url| !url.is_empty()).into_iter().collect();
    Member {
        name: member.name.clone(),
        peer_urls: urls(&member.peer_url),
        client_urls: urls(&member.client_url),
        learner: member.role == MemberRole::Learner,
    }
}

fn outcome(id: u64, member: &MemberStatus, leader: u64, cluster_id: u64) -> Outcome {
    if member.unhealthy_since.is_some() {
        return Outcome::MemberFault(MemberFault::Closed(member.message.clone()));
    }
    if member.health != Health::Healthy {
        return Outcome::OurFault(OurFault::Internal(member.message.clone()));
    }
    let learner = member.role == MemberRole::Learner;
    let database_size = member.database_size_bytes.unwrap_or_default();
    Outcome::Answered(Report { database_size, ..report(id, cluster_id, leader, learner, &member.version) })
}

/// The report of a healthy member.
#[must_use]
pub fn report(member_id: u64, cluster_id: u64, leader: u64, learner: bool, version: &str) -> Report {
    let version = version.to_owned();
    Report { leader, learner, version, database_size: 0, ..Report::of_one_that_is_well(cluster_id, member_id) }
}

fn probe(now: Timestamp, id: u64, member: &MemberStatus, outcome: Outcome) -> Probe {
    let since = member.unhealthy_since.as_ref().or(member.healthy_since.as_ref()).map_or(now, |since| since.0);
    let run = Run { since, last: now, ..Run::new(outcome.kind(), now) };
    Probe { url: member.client_url.clone(), at: now, outcome, run, answered: None, expected: Some(id) }
}

/// An observation that serves to compare Machines with the spec, and for nothing else.
#[must_use]
pub fn for_comparing(snapshot: &Snapshot) -> Observation {
    let template = Template::Unknown("it is not needed".to_owned());
    observation(snapshot, snapshot.etcd.clone(), template)
}

/// The endpoints in use, as the planner reads them.
#[must_use]
pub fn endpoints_in_use(etcd: &EtcdCluster) -> Option<&str> {
    let annotated = etcd.annotations().get(names::ENDPOINTS_IN_USE_ANNOTATION).map(String::as_str);
    let recorded = || etcd.status.as_ref().map(|status| status.endpoints_in_use.as_str());
    annotated.or_else(recorded).filter(|lists| !lists.is_empty())
}
