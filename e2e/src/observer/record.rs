//! What the observer writes down: a line for everything that has changed, in the order in which it was seen.

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::BufRead;

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When it was seen.
    pub at: Timestamp,
    /// What was seen.
    #[serde(flatten)]
    pub event: Event,
}

/// What was seen. Objects are named `<namespace>/<name>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Event {
    /// The record begins.
    Begun {
        /// Name of the scenario.
        scenario: String,
    },
    /// A Cluster has appeared or changed.
    Cluster(Cluster),
    /// An EtcdCluster has appeared or changed.
    Etcd(Etcd),
    /// A Machine has appeared or changed.
    Machine(Machine),
    /// A control plane has appeared or changed.
    ControlPlane(ControlPlane),
    /// An API server, running or about to be made, uses these endpoints.
    ApiServer(ApiServer),
    /// Something that was recorded before is gone, or is no longer observed.
    Gone {
        /// The event's kind: `cluster`, `etcd`, `machine`, `controlPlane`, `apiServer`, `member`.
        what: String,
        /// Its name. A member is named `<namespace>/<EtcdCluster> <client URL>`.
        name: String,
    },
    /// What a member has answered.
    Member(Member),
    /// How far the log on the disk of a silent member goes.
    Disk(Disk),
    /// The settings with which an etcd process was started.
    Process(Process),
    /// A scenario makes a fault, or ends one.
    Fault(Fault),
    /// A note, which changes nothing for the rules.
    Note {
        /// The text of the note.
        text: String,
        /// The only namespace that it concerns. Empty if it concerns all.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        namespace: String,
    },
    /// The observer itself was held up. Members may have been silent meanwhile, and several changes may be recorded as
    /// one.
    Late {
        /// Milliseconds between two rounds of samples.
        millis: u64,
    },
    /// The record ends.
    Ended,
}

/// What is recorded of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// It is being deleted.
    pub deleting: bool,
    /// The EtcdCluster that it names; empty if it names none.
    #[serde(default)]
    pub etcd: String,
}

/// What is recorded of an EtcdCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Etcd {
    /// Its name.
    pub name: String,
    /// Its UID. With another UID it is another EtcdCluster of the same name.
    pub uid: String,
    /// Its Cluster.
    pub cluster: String,
    /// How many members are wanted.
    pub replicas: usize,
    /// The part of the spec that may cause a rollout: everything except `healthCheck` and `remediation`.
    pub spec: Value,
    /// It is being deleted.
    pub deleting: bool,
    /// Whether it says that it is ready.
    pub ready: bool,
    /// Endpoints that its status publishes.
    pub endpoints: Vec<String>,
    /// Endpoints that API servers may be using, by its annotation.
    pub in_use: Vec<String>,
    /// A person has said, for the present generation, that API servers need not keep their endpoints.
    pub ignores_in_use: bool,
    /// Its `max-learners`, by its annotation.
    pub max_learners: Option<u32>,
    /// Its `status.operation`.
    pub operation: Option<Operation>,
    /// The voters in its status, by ID in hexadecimal.
    #[serde(default)]
    pub voters: Vec<String>,
}

impl Etcd {
    /// Its `maxSurge`. `None`: the default.
    #[must_use]
    pub fn max_surge(&self) -> Option<usize> {
        let given = self.spec.pointer("/rolloutStrategy/rollingUpdate/maxSurge").and_then(Value::as_u64);
        given.and_then(|given| usize::try_from(given).ok())
    }
}

/// A change of etcd that the controller has decided on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// `RemoveMember` or `MoveLeader`.
    pub what: String,
    /// ID of the member that it changes, in hexadecimal.
    pub member: String,
}

/// What is recorded of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The EtcdCluster that it is a Machine of; empty if it is not a Machine of etcd.
    pub etcd: String,
    /// Its phase.
    pub phase: String,
    /// It is being deleted.
    pub deleting: bool,
    /// Its IP addresses.
    pub addresses: Vec<String>,
    /// Those of its annotations that are ours or are pre-terminate hooks.
    pub annotations: BTreeMap<String, String>,
}

/// What is recorded of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlane {
    /// Its name.
    pub name: String,
    /// Its Cluster.
    pub cluster: String,
    /// Endpoints in its spec: what its next API server gets. The placeholder is left out.
    pub endpoints: Vec<String>,
    /// It is paused.
    pub paused: bool,
    /// How many Machines match its spec, according to its status.
    pub up_to_date: i64,
}

/// An API server of a workload cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiServer {
    /// Its name: that of its config, or of its process.
    pub name: String,
    /// Its Cluster.
    pub cluster: String,
    /// Endpoints that it was, or will be, started with.
    pub endpoints: Vec<String>,
    /// Whether it reports that it is ready. `None` for an API server of which only the config is known.
    pub ready: Option<bool>,
}

/// What one member has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// The EtcdCluster.
    pub etcd: String,
    /// The client URL that was asked.
    pub url: String,
    /// The answer.
    pub answer: Answer,
    /// Milliseconds since the member's last answer, if they are more than two rounds. Then the answers do not show
    /// everything that has happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<u64>,
}

/// An answer, or none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The member's own status.
    Status(Box<Status>),
    /// The member did not answer in time, for this reason.
    Silent(String),
}

/// A member's own status and member list. IDs are hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its ID.
    pub id: String,
    /// ID of its cluster.
    pub cluster_id: String,
    /// ID of the leader that it knows; empty if it knows none.
    pub leader: String,
    /// Raft's term.
    pub term: u64,
    /// Index that it knows to be committed.
    pub index: u64,
    /// Index that it has applied.
    pub applied: u64,
    /// Revision of its keys.
    pub revision: i64,
    /// Version of etcd.
    pub version: String,
    /// It does not vote.
    pub learner: bool,
    /// Size of its database in bytes.
    pub db_size: i64,
    /// The errors that it reports, alarms included.
    pub errors: Vec<String>,
    /// The members that it knows, by ID. Empty if it does not report them, as learners do not.
    pub list: Vec<Listed>,
    /// Index that it had applied when it was first seen with this list. A list with a higher index is newer.
    pub list_at: u64,
}

/// An entry of a member list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listed {
    /// ID, in hexadecimal.
    pub id: String,
    /// Name; empty until it has started once.
    pub name: String,
    /// It does not vote.
    pub learner: bool,
    /// URLs for clients; empty until it has started once.
    pub urls: Vec<String>,
}

/// How far the log on a disk goes, while its member does not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The EtcdCluster.
    pub etcd: String,
    /// The client URL of its member.
    pub url: String,
    /// Index of the last entry; 0 if there is no log.
    pub last: u64,
}

/// An etcd process, as its machine has started it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The client URL that it advertises.
    pub url: String,
    /// Its `max-learners`. 1 if it is not set, which is etcd's own default.
    pub max_learners: u32,
}

/// A fault that a scenario makes, or the end of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What the scenario does.
    pub what: String,
    /// Machines whose members may be silent from now on.
    pub machines: Vec<String>,
    /// Until when. Without a time, until another fault of these machines ends it.
    pub until: Option<Timestamp>,
    /// It is the end of a fault: nothing new has happened to the machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// The scenario removes the members of these machines from etcd itself: they leave without our doing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed_by_hand: bool,
}

impl Event {
    /// A note that concerns all namespaces.
    pub(crate) fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into(), namespace: String::new() }
    }

    /// The key of what this event is about. Events about the same thing have the same key. Faults and notes have none.
    #[must_use]
    pub fn key(&self) -> Option<(String, String)> {
        let key = |what: &str, name: &str| Some((what.to_owned(), name.to_owned()));
        match self {
            Self::Cluster(cluster) => key("cluster", &cluster.name),
            Self::Etcd(etcd) => key("etcd", &etcd.name),
            Self::Machine(machine) => key("machine", &machine.name),
            Self::ControlPlane(control_plane) => key("controlPlane", &control_plane.name),
            Self::ApiServer(server) => key("apiServer", &server.name),
            Self::Gone { what, name } => key(what, name),
            Self::Member(member) => key("member", &format!("{} {}", member.etcd, member.url)),
            Self::Disk(disk) => key("disk", &format!("{} {}", disk.etcd, disk.url)),
            Self::Process(process) => key("process", &process.url),
            Self::Begun { .. } | Self::Fault(_) | Self::Note { .. } | Self::Late { .. } | Self::Ended => None,
        }
    }
}

/// The namespace of an object that is named `<namespace>/<name>`.
#[must_use]
pub fn namespace(name: &str) -> &str {
    name.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// Reads a record.
///
/// # Errors
/// When a line is not a line of a record; the error has its number.
pub fn read(text: impl BufRead) -> Result<Vec<Line>> {
    let line = |(number, line): (usize, std::io::Result<String>)| {
        let place = || format!("line {} of the record", number + 1);
        serde_json::from_str(&line.with_context(place)?).with_context(place)
    };
    text.lines().enumerate().map(line).collect()
}
