//! What the prober knows about the members of one cluster, as plain data.
//!
//! Three cases are kept apart. A member that answers says what it is ([`Report`]). A member that fails has a
//! [`MemberFault`]. What keeps *this controller* from asking is an [`OurFault`], and no member's fault. A [`Distrust`]
//! is the member's fault only if another member answers this controller.
//!
//! A Machine's member is also found by the ID that answers at the Machine's addresses: see
//! [`Observation::machine_of`](super::Observation::machine_of).

mod run;

pub use run::{Run, RunKind, longest_gap};

use super::{Member, hex};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Which member is probed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKey {
    /// The member of the Machine with this name.
    Machine(String),
    /// A stranger, by its ID.
    Stranger(u64),
}

#[cfg(test)]
impl TargetKey {
    /// The member of a Machine.
    pub(crate) fn of(machine: &str) -> Self {
        Self::Machine(machine.to_owned())
    }
}

/// Everything that the prober knows about one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The latest probe of each target that has been probed.
    pub probes: BTreeMap<TargetKey, Probe>,
    /// The latest member list. While members do not answer, it may be older than our latest change of etcd: half a
    /// minute old with the default interval.
    pub membership: Membership,
    /// Members from which the leader has received something lately. The leader is asked only while a member fails.
    /// `None`: not known.
    pub heard: Option<BTreeSet<u64>>,
    /// The time since when, at every moment, the latest check of at least one voter had succeeded. `None`: there is no
    /// such voter now.
    pub voters_answer_since: Option<Timestamp>,
}

/// The time since when, at every moment, the latest check of at least one voter had succeeded. One of `probes` has just
/// ended at the time `at`, with the result `ended`. `before` is the value before that probe. If the clock has been set
/// back to before that value, the time begins again at `at`. A probe with the result Unknown changes nothing.
pub(crate) fn voters_answer_since<'a>(
    before: Option<Timestamp>,
    mut probes: impl Iterator<Item = &'a Probe>,
    ended: RunKind,
    at: Timestamp,
) -> Option<Timestamp> {
    if ended == RunKind::Unknown {
        return before;
    }
    probes.any(Probe::is_of_a_voter_that_is_well).then(|| before.map_or(at, |before| before.min(at)))
}

/// The latest probe of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The client URL that was asked: the one where the expected member answered, otherwise the first one. Empty if
    /// there was no URL to ask.
    pub url: String,
    /// When the probe ended.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// For how long the result has been the same, with the same member expected.
    pub run: Run,
    /// When something last answered as a member, well or not. `None`: not since this controller started.
    pub answered: Option<Timestamp>,
    /// The ID of the member that was expected. `None`: the Machine was not known to have a member, so a failure says
    /// nothing about a member.
    pub expected: Option<u64>,
}

impl Probe {
    /// What the member says of itself, if anything answers as a member.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match &self.outcome {
            Outcome::Answered(report) => Some(report),
            Outcome::MemberFault(_) | Outcome::OurFault(_) | Outcome::NoAddress => None,
        }
    }

    /// Whether it shows a quorum: a voter is checked by a linearizable read, and a learner is not.
    fn is_of_a_voter_that_is_well(&self) -> bool {
        self.report().is_some_and(|report| !report.learner && report.fault().is_none())
    }

    /// Why the member does not count as healthy, if the member is at fault.
    #[must_use]
    pub fn member_fault(&self) -> Option<&MemberFault> {
        match &self.outcome {
            Outcome::Answered(report) => report.fault(),
            Outcome::MemberFault(fault) => Some(fault),
            Outcome::OurFault(_) | Outcome::NoAddress => None,
        }
    }
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A member answered over TLS. It is healthy only if [`Report::fault`] is `None`.
    Answered(Report),
    /// No member answered, and that is not this controller's fault.
    MemberFault(MemberFault),
    /// This controller could not ask. Nothing is known about the member.
    OurFault(OurFault),
    /// There was nothing to ask: the Machine has no address, and its member has never been reached.
    NoAddress,
}

impl Outcome {
    /// What the outcome contributes to a [`Run`].
    #[must_use]
    pub fn kind(&self) -> RunKind {
        match self {
            Self::Answered(report) if report.fault().is_none() => RunKind::Healthy,
            Self::Answered(_) | Self::MemberFault(_) => RunKind::Failing,
            Self::OurFault(_) | Self::NoAddress => RunKind::Unknown,
        }
    }
}

/// What a member says of itself (`/v3/maintenance/status`), and whether it answers a linearizable read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its ID.
    pub member_id: u64,
    /// ID of the cluster that it is in.
    pub cluster_id: u64,
    /// Member ID of the leader that it follows. 0 if it knows no leader.
    pub leader: u64,
    /// It is a learner.
    pub learner: bool,
    /// etcd version.
    pub version: String,
    /// Size of its database in bytes.
    pub database_size: i64,
    /// Quota of its database in bytes. `None`: it does not report one, as before etcd 3.6.
    pub database_quota: Option<i64>,
    /// raft's term. Every election begins a higher one. 0 if it does not report one.
    pub raft_term: u64,
    /// When the certificate that it presented expires. `None`: the certificate cannot be read.
    pub certificate_expires: Option<Timestamp>,
    /// Alarms that are raised in its cluster. The status reports them; they make no member unhealthy.
    pub alarms: Vec<Alarm>,
    /// Whether this is the expected member of the expected cluster. If not, the error is [`MemberFault::OtherCluster`]
    /// or [`MemberFault::OtherMember`].
    pub identity: Result<(), MemberFault>,
    /// Whether it answers a linearizable read, which takes a quorum. A member that does not is still alive. Always `Ok`
    /// for a learner: a learner refuses such reads, so it is not asked.
    pub linearizable: Result<(), MemberFault>,
}

impl Report {
    /// The report of a healthy voter that leads. It is for made-up probes, in forecasts and in tests.
    #[must_use]
    pub fn of_one_that_is_well(cluster_id: u64, member_id: u64) -> Self {
        Self {
            member_id,
            cluster_id,
            leader: member_id,
            learner: false,
            version: "3.6.16".to_owned(),
            database_size: 20_480,
            database_quota: None,
            raft_term: 2,
            certificate_expires: None,
            alarms: Vec::new(),
            identity: Ok(()),
            linearizable: Ok(()),
        }
    }

    /// Why the member does not count as healthy, although it answers.
    #[must_use]
    pub fn fault(&self) -> Option<&MemberFault> {
        self.identity.as_ref().err().or(self.linearizable.as_ref().err())
    }
}

/// All alarms in these reports. Pass only the reports of voters that answer a linearizable read: a member that is cut
/// off may still report an alarm that has long been cleared. `None`: there is no report.
pub(crate) fn alarms<'a>(reports: impl Iterator<Item = &'a Report>) -> Option<BTreeSet<&'a Alarm>> {
    let alarms = reports.map(|report| report.alarms.iter().collect());
    alarms.reduce(|all: BTreeSet<&Alarm>, more| &all | &more)
}

/// An alarm of etcd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alarm {
    /// ID of the member that it is about; 0 if etcd does not say.
    pub member_id: u64,
    /// `NOSPACE`, `CORRUPT`, or a kind that a later version of etcd adds.
    pub kind: String,
}

/// What is wrong with a member, or with the network between it and this controller. The text is for people.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MemberFault {
    /// Nothing listens on the port.
    #[error("connection refused: the machine is up, etcd does not listen")]
    Refused,
    /// The network reports that the host cannot be reached.
    #[error("host unreachable: the machine is off, or the network between it and this controller is interrupted")]
    Unreachable,
    /// No answer came within the limit of the probe.
    #[error("no answer within {seconds} s")]
    NoAnswerInTime {
        /// How long the probe waited.
        seconds: u64,
    },
    /// The connection ended before the answer.
    #[error("connection closed without an answer: {0}")]
    Closed(String),
    /// This controller does not accept the member's TLS certificate, or what answers does not speak TLS as expected.
    #[error("TLS: {0}")]
    Tls(String),
    /// It and this controller do not trust each other, while another member answers.
    #[error("{0}, and another one answers: this one's CA, certificate or clock is wrong")]
    Distrust(Distrust),
    /// An answer with an HTTP status that is not a success.
    #[error("{path} answers {status}: {body}")]
    Http {
        /// Path of the request.
        path: &'static str,
        /// HTTP status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// An answer that cannot be read.
    #[error("answers what etcd does not: {0}")]
    Garbled(String),
    /// The member is alive and knows no leader.
    #[error("the member is running but has no leader: the cluster has lost quorum, or the member is cut off from it")]
    NoLeader,
    /// A member of another cluster answers.
    #[error("a member of another etcd cluster ({}) answers at its address; the recorded cluster is {}", hex(*.answered), hex(*.expected))]
    OtherCluster {
        /// The recorded cluster ID.
        expected: u64,
        /// The cluster ID that answers.
        answered: u64,
    },
    /// Another member answers.
    #[error("another member ({}) answers at its address; member {} is expected", hex(*.answered), hex(*.expected))]
    OtherMember {
        /// The expected member ID.
        expected: u64,
        /// The member ID that answers.
        answered: u64,
    },
}

/// Why TLS has failed where either side may be the cause: the clock or the CA of the one may be wrong, or that of the
/// other. The text is for people.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Distrust {
    /// The member does not accept this controller's client certificate.
    #[error("the member refuses the client certificate of this controller ({0})")]
    ClientCertificateRefused(String),
    /// The member's certificate has expired or is not valid yet, by this controller's clock.
    #[error("TLS: the member's {0}")]
    NotValidNow(String),
}

/// What kept this controller from asking a member. The text is for people.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum OurFault {
    /// This process, or its node, has no file descriptor left.
    #[error("this controller is out of file descriptors; raise the limit (RLIMIT_NOFILE)")]
    FileDescriptors,
    /// The kernel that this controller runs on has no memory, buffers or ports left, or forbids the connection.
    #[error("the system that this controller runs on cannot open a connection: {0}")]
    System(String),
    /// The network that this controller is on has no route to the address: that says nothing about the member.
    #[error("this controller's network has no route to the address: {0}")]
    NoRoute(String),
    /// The client certificate cannot be made.
    #[error("this controller's client certificate cannot be made: {0}")]
    ClientCertificate(String),
    /// The member and this controller do not trust each other, and no other member answers.
    #[error(
        "{0}, and no other one answers: the clock or the CA of this controller may be wrong, as well as the member's"
    )]
    Distrust(Distrust),
    /// A host name cannot be resolved: the name server does not answer, or does not know the name. Both say nothing
    /// about the member, which may well serve clients that resolve the name elsewhere.
    #[error("a host name cannot be resolved: {0}")]
    NameResolution(String),
    /// Anything else.
    #[error("internal error of this controller: {0}")]
    Internal(String),
}

/// etcd's own list of its members, from a linearizable read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Membership {
    /// No member has answered yet, so there is no member to ask for the list.
    #[default]
    NotAsked,
    /// The list is not known.
    Unknown(ListFault),
    /// The list.
    Known {
        /// ID of the cluster: the recorded one, if one is recorded.
        cluster_id: u64,
        /// Members by ID.
        members: BTreeMap<u64, Member>,
        /// When it was read.
        at: Timestamp,
    },
}

/// Why the member list is not known.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ListFault {
    /// Only members of other clusters answer. Their lists are not read: another identity is never adopted.
    #[error("members of another etcd cluster answer ({}); the recorded cluster is {}", joined(.ids), hex(*.recorded))]
    OtherCluster {
        /// The recorded cluster ID.
        recorded: u64,
        /// The cluster IDs that answer.
        ids: BTreeSet<u64>,
    },
    /// No cluster ID is recorded, and members of several clusters answer. The value is their cluster IDs.
    #[error("members of several etcd clusters answer ({})", joined(.0))]
    SeveralClusters(BTreeSet<u64>),
    /// No cluster ID is recorded, and the etcd that answers is not one that a Machine has just initialized.
    #[error(
        "etcd cluster {} answers, with {members} {}, and is not one that a Machine of this EtcdCluster has just initialized",
        hex(*.id), if *.members == 1 { "member" } else { "members" }
    )]
    NotNew {
        /// The cluster ID that answers.
        id: u64,
        /// How many members its list has.
        members: usize,
    },
    /// No voter answers a linearizable read, so no list can be trusted. The value is the first voter's fault, if a
    /// voter answers at all.
    #[error("no voter answers a linearizable read{}", .0.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default())]
    NoQuorum(Option<MemberFault>),
    /// The members that were asked did not give a list.
    #[error("{url}: {fault}")]
    Member {
        /// Client URL of the last member that was asked.
        url: String,
        /// The fault of that member.
        fault: MemberFault,
    },
    /// This controller could not ask.
    #[error(transparent)]
    Ours(OurFault),
}

fn joined(ids: &BTreeSet<u64>) -> String {
    ids.iter().map(|id| hex(*id)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(cluster_id: u64, member_id: u64) -> Probe {
        let report = Report { leader: 1, ..Report::of_one_that_is_well(cluster_id, member_id) };
        Probe {
            url: "https://10.0.0.1:2379".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            run: Run::new(RunKind::Healthy, Timestamp::UNIX_EPOCH),
            outcome: Outcome::Answered(report),
            expected: Some(member_id),
            answered: None,
        }
    }

    #[test]
    fn an_alarm_is_not_a_fault_and_an_answer_is_not_health() {
        let Outcome::Answered(report) = probe(0xc, 1).outcome else { unreachable!() };
        let kind = |change: &dyn Fn(&mut Report)| {
            let mut report = report.clone();
            change(&mut report);
            Outcome::Answered(report).kind()
        };
        let alarm = Alarm { member_id: 1, kind: "NOSPACE".to_owned() };
        assert_eq!(kind(&|report| report.alarms = vec![alarm.clone()]), RunKind::Healthy);
        assert_eq!(kind(&|report| report.linearizable = Err(MemberFault::NoLeader)), RunKind::Failing);
        let other = MemberFault::OtherMember { expected: 1, answered: 2 };
        assert_eq!(kind(&|report| report.identity = Err(other.clone())), RunKind::Failing);
        assert_eq!(Outcome::OurFault(OurFault::FileDescriptors).kind(), RunKind::Unknown);
        assert_eq!(Outcome::NoAddress.kind(), RunKind::Unknown);
    }

    #[test]
    fn a_fault_names_the_cause_with_ids_as_etcdctl_prints_them() {
        let fault = MemberFault::OtherCluster { expected: 0xabc, answered: 0xdef };
        assert!(fault.to_string().contains("(def)") && fault.to_string().ends_with("abc"), "{fault}");
        let fault = ListFault::SeveralClusters([0xa, 0xb].into());
        assert_eq!(fault.to_string(), "members of several etcd clusters answer (a, b)");
        assert!(ListFault::NoQuorum(Some(MemberFault::NoLeader)).to_string().contains(": the member is running"));
    }
}
