//! Condition types and reasons: every one that we write, with its meaning. `docs/conditions.md` is for readers; this is
//! the list that it is checked against.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// All wanted members are healthy voters, and what the control plane needs is published. `status.ready` says the same.
pub const READY: &str = "Ready";
/// A quorum of the voters answers, and no alarm makes etcd refuse writes: etcd can be written to.
pub const AVAILABLE: &str = "Available";
/// The first member is up: others can join.
pub const INITIALIZED: &str = "Initialized";
/// The CA and the certificates derived from it exist.
pub const CERTIFICATES_AVAILABLE: &str = "CertificatesAvailable";
/// Every member answers its health check.
pub const MEMBERS_HEALTHY: &str = "MembersHealthy";
/// etcd has raised no alarm. Otherwise the message names the alarms, and says what ends them.
pub const NO_ALARMS: &str = "NoAlarms";
/// `status.endpoints` names at least one voter.
pub const ENDPOINTS_AVAILABLE: &str = "EndpointsAvailable";
/// Members are being added until there are `replicas`. The message says what they wait for.
pub const SCALING_UP: &str = "ScalingUp";
/// There are more Machines than wanted. The message says which of them go, and what they wait for.
pub const SCALING_DOWN: &str = "ScalingDown";
/// Every Machine is Ready by its own condition, which is Cluster API's.
pub const MACHINES_READY: &str = "MachinesReady";
/// Machines that do not match the spec are being replaced.
pub const ROLLING_OUT: &str = "RollingOut";
/// Every Machine was made from the present spec.
pub const MACHINES_UP_TO_DATE: &str = "MachinesUpToDate";
/// A Machine was deleted and is on its way out. The message says what it waits for.
pub const MACHINES_DELETING: &str = "MachinesDeleting";
/// A failed member is being replaced, or a Machine is marked for remediation. The message says what it waits for.
pub const REMEDIATING: &str = "Remediating";
/// The Cluster or the EtcdCluster is paused: nothing is changed.
pub const PAUSED: &str = "Paused";
/// The object is being deleted. The message says what the deletion waits for.
pub const DELETING: &str = "Deleting";
/// On a Machine (Cluster API's own type): as far as Cluster API knows, all is well with the Machine.
pub const MACHINE_READY: &str = "Ready";
/// On a Machine (Cluster API's own type, which Cluster API leaves to the Machine's owner): the Machine matches the spec
/// of its EtcdCluster.
pub const MACHINE_UP_TO_DATE: &str = "UpToDate";
/// On an EtcdadmConfig: the bootstrap Secret exists.
pub const DATA_SECRET_AVAILABLE: &str = "DataSecretAvailable";
/// On a Cluster: the state of the etcd that it names.
pub const MANAGED_EXTERNAL_ETCD_READY: &str = "ManagedExternalEtcdReady";
/// On a KubeadmControlPlane (Cluster API's own type, which Cluster API leaves to the manager of an external etcd): etcd
/// is Ready.
pub const ETCD_CLUSTER_HEALTHY: &str = "EtcdClusterHealthy";

/// Reasons, in the order in which a cluster meets them.
pub mod reasons {
    /// The condition is as good as it gets.
    pub const READY: &str = "Ready";
    /// A quorum answers.
    pub const AVAILABLE: &str = "Available";
    /// No Cluster names this EtcdCluster yet.
    pub const WAITING_FOR_CLUSTER: &str = "WaitingForCluster";
    /// The EtcdCluster's label names a Cluster that names another etcd.
    pub const CLUSTER_USES_ANOTHER_ETCD: &str = "ClusterUsesAnotherEtcd";
    /// More than one Cluster names this EtcdCluster.
    pub const CLAIMED_BY_SEVERAL_CLUSTERS: &str = "ClaimedBySeveralClusters";
    /// Machines carry the EtcdCluster's label, and the EtcdCluster does not control them.
    pub const MACHINES_NOT_OWNED: &str = "MachinesNotOwned";
    /// The Cluster's infrastructure is not provisioned yet.
    pub const WAITING_FOR_CLUSTER_INFRASTRUCTURE: &str = "WaitingForClusterInfrastructure";
    /// The Cluster or the object is paused.
    pub const PAUSED: &str = "Paused";
    /// Neither the Cluster nor the object is paused.
    pub const NOT_PAUSED: &str = "NotPaused";
    /// Nothing is paused, and the EtcdCluster or a Machine carries clusterctl's annotation of objects that it has moved
    /// away.
    pub const MOVED_AWAY: &str = "MovedAway";
    /// The object is being deleted.
    pub const DELETING: &str = "Deleting";
    /// The object is not being deleted.
    pub const NOT_DELETING: &str = "NotDeleting";
    /// The infrastructure template does not exist, or no such kind is served, and the object was created a moment ago.
    pub const WAITING_FOR_TEMPLATE: &str = "WaitingForInfrastructureTemplate";
    /// The infrastructure template does not exist, or no such kind is served.
    pub const TEMPLATE_NOT_FOUND: &str = "InfrastructureTemplateNotFound";
    /// The template exists but cannot be used; the message says why.
    pub const TEMPLATE_INVALID: &str = "InfrastructureTemplateInvalid";
    /// A Secret of this name exists with content that cannot be used; the message says what is wrong.
    pub const SECRET_INVALID: &str = "SecretInvalid";
    /// An object of that name exists and belongs to somebody else.
    pub const NAME_TAKEN: &str = "NameTaken";
    /// The certificates exist.
    pub const CERTIFICATES_AVAILABLE: &str = "CertificatesAvailable";
    /// The certificates do not exist yet.
    pub const WAITING_FOR_CERTIFICATES: &str = "WaitingForCertificates";
    /// A Machine has been made and has no address yet.
    pub const WAITING_FOR_MACHINE_ADDRESS: &str = "WaitingForMachineAddress";
    /// A Machine has an address and its member does not answer yet.
    pub const WAITING_FOR_MEMBER: &str = "WaitingForMember";
    /// A Machine's start-up grace is over, and no member on it has answered.
    pub const MACHINE_NOT_BOOTING: &str = "MachineNotBooting";
    /// A member is still a learner.
    pub const WAITING_FOR_PROMOTION: &str = "WaitingForPromotion";
    /// A member fails its health check: no member is added before that one is healthy again.
    pub const WAITING_FOR_HEALTHY_MEMBERS: &str = "WaitingForHealthyMembers";
    /// The member list cannot be read, or disagrees with what the members say.
    pub const MEMBERSHIP_UNKNOWN: &str = "MembershipUnknown";
    /// A member fails its health check.
    pub const MEMBER_UNHEALTHY: &str = "MemberUnhealthy";
    /// Every member is healthy.
    pub const MEMBERS_HEALTHY: &str = "MembersHealthy";
    /// There are fewer members than wanted.
    pub const SCALING_UP: &str = "ScalingUp";
    /// There are as many members as wanted.
    pub const NOT_SCALING_UP: &str = "NotScalingUp";
    /// There are more Machines than wanted.
    pub const SCALING_DOWN: &str = "ScalingDown";
    /// There are not more Machines than wanted.
    pub const NOT_SCALING_DOWN: &str = "NotScalingDown";
    /// A member is being replaced: it has failed for long enough, or its Machine was marked for remediation.
    pub const REPLACING_MEMBER: &str = "ReplacingMember";
    /// A Machine is marked for remediation, and something else comes first.
    pub const WAITING_FOR_REMEDIATION: &str = "WaitingForRemediation";
    /// No failed member is being replaced, and no Machine is marked for remediation.
    pub const NOT_REMEDIATING: &str = "NotRemediating";
    /// A replacement has failed or is marked too, and the next one begins when the time of `spec.remediation` is over.
    pub const REMEDIATION_DELAYED: &str = "RemediationDelayed";
    /// A replacement has failed or is marked too, after as many replacements in a row as `spec.remediation.maxRetry`
    /// allows.
    pub const REMEDIATION_LIMIT_REACHED: &str = "RemediationLimitReached";
    /// Fewer than a quorum of the voters answer.
    pub const QUORUM_LOST: &str = "QuorumLost";
    /// Members of another etcd cluster, or of one that was restored, answer where ours are expected.
    pub const CLUSTER_ID_CHANGED: &str = "ClusterIDChanged";
    /// The EtcdCluster is being deleted, and nobody has confirmed that its data may be deleted.
    pub const DELETION_NOT_CONFIRMED: &str = "DeletionNotConfirmed";
    /// A Machine was deleted, and its member is the only one with the data.
    pub const WOULD_LOSE_DATA: &str = "WouldLoseData";
    /// A Machine was deleted, and removing its member now would leave the cluster with less than it needs.
    pub const WAITING_FOR_SAFE_REMOVAL: &str = "WaitingForSafeRemoval";
    /// A member is being removed from etcd, or leadership is moved away from it first.
    pub const REMOVING_MEMBER: &str = "RemovingMember";
    /// No Machine is being deleted.
    pub const NO_MACHINES_DELETING: &str = "NoMachinesDeleting";
    /// A member disappeared from the member list, and we did not remove it.
    pub const MEMBER_MISSING: &str = "MemberMissing";
    /// Nothing is known of a member's health.
    pub const HEALTH_UNKNOWN: &str = "HealthUnknown";
    /// etcd has raised no alarm.
    pub const NO_ALARMS: &str = "NoAlarms";
    /// etcd has raised the alarm NOSPACE: its database is full, and it refuses writes.
    pub const NO_SPACE: &str = "NoSpace";
    /// etcd has raised the alarm CORRUPT: members have different data, and it refuses writes.
    pub const DATA_CORRUPT: &str = "DataCorrupt";
    /// etcd has raised an alarm that this controller does not know.
    pub const ALARM_RAISED: &str = "AlarmRaised";
    /// The cluster is initialized.
    pub const INITIALIZED: &str = "Initialized";
    /// The cluster is not initialized yet.
    pub const NOT_INITIALIZED: &str = "NotInitialized";
    /// Endpoints are published in the status.
    pub const ENDPOINTS_AVAILABLE: &str = "EndpointsAvailable";
    /// There is no endpoint yet.
    pub const NO_ENDPOINTS: &str = "NoEndpoints";
    /// Every Machine is made from the present spec.
    pub const UP_TO_DATE: &str = "UpToDate";
    /// Some Machines do not match the spec, and stay until a person deletes them.
    pub const MADE_FROM_AN_EARLIER_SPEC: &str = "MadeFromAnEarlierSpec";
    /// On a Machine: the certificate of its member expires soon.
    pub const CERTIFICATE_EXPIRES: &str = "CertificateExpires";
    /// Machines that do not match the spec are being replaced by ones that do.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// No Machine is being replaced because it does not match the spec.
    pub const NOT_ROLLING_OUT: &str = "NotRollingOut";
    /// A Machine is not Ready by its own condition.
    pub const NOT_READY: &str = "NotReady";
    /// It is not known whether a Machine is Ready: its own condition says so, or does not exist yet.
    pub const READY_UNKNOWN: &str = "ReadyUnknown";
    /// There is no Machine.
    pub const NO_REPLICAS: &str = "NoReplicas";
    /// The members cannot change to the etcd version of the spec in one step, or cannot change to it at all.
    pub const UNSUPPORTED_VERSION_CHANGE: &str = "UnsupportedVersionChange";

    /// An EtcdadmConfig has no owner Machine.
    pub const WAITING_FOR_MACHINE: &str = "WaitingForMachine";
    /// The Machine is not admitted yet.
    pub const WAITING_FOR_ADMISSION: &str = "WaitingForAdmission";
    /// Another Machine initializes the cluster. This one joins afterwards.
    pub const WAITING_FOR_INITIALIZATION: &str = "WaitingForInitialization";
    /// A Secret that a file of the spec refers to is missing, or has no such key.
    pub const WAITING_FOR_FILE_SECRET: &str = "WaitingForFileSecret";
    /// The API server refused a read or a write (a permission, a webhook, a rule). The message has its answer.
    pub const REFUSED: &str = "RefusedByApiServer";
    /// The spec cannot be rendered; the message names the field.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// The bootstrap Secret exists.
    pub const DATA_SECRET_AVAILABLE: &str = "DataSecretAvailable";

    /// On a Cluster: no object of the named kind and name exists.
    pub const ETCD_NOT_FOUND: &str = "EtcdNotFound";
    /// On a Cluster: the named kind is not served, or is not an etcd provider.
    pub const ETCD_KIND_INVALID: &str = "EtcdKindInvalid";
    /// On a Cluster: the named etcd belongs to another Cluster.
    pub const ETCD_BELONGS_TO_ANOTHER_CLUSTER: &str = "EtcdBelongsToAnotherCluster";
    /// On a Cluster: etcd is not ready.
    pub const WAITING_FOR_ETCD: &str = "WaitingForEtcd";
    /// On a Cluster: it names no control plane yet, or the control plane does not exist.
    pub const WAITING_FOR_CONTROL_PLANE: &str = "WaitingForControlPlane";
    /// On a Cluster: the control plane cannot take etcd's endpoints; the message says why.
    pub const CONTROL_PLANE_INVALID: &str = "ControlPlaneInvalid";
    /// On a Cluster: it has no `spec.controlPlaneEndpoint`, without which no control-plane machine is made.
    pub const WAITING_FOR_CONTROL_PLANE_ENDPOINT: &str = "WaitingForControlPlaneEndpoint";
    /// On a Cluster: etcd's provider publishes endpoints that API servers cannot use.
    pub const ETCD_ENDPOINTS_INVALID: &str = "EtcdEndpointsInvalid";
    /// On a Cluster: a Secret that the user has supplied for all control-plane machines to share is incomplete.
    pub const SHARED_CERTIFICATES_INVALID: &str = "SharedCertificatesInvalid";
    /// On a Cluster and its control plane: etcd is handed over, and some API servers still use earlier endpoints, or which
    /// they use is not known.
    pub const CONTROL_PLANE_ROLLING_OUT: &str = "ControlPlaneRollingOut";
    /// On a Cluster: somebody overwrites etcd's endpoints in the control plane again and again, so the hook waits
    /// before it writes them again.
    pub const ENDPOINTS_REVERTED_BY_OTHERS: &str = "EndpointsRevertedByOthers";
    /// On a Cluster: there is a client Secret that the hook has not made, and its certificate is not that of etcd's
    /// provider.
    pub const CLIENT_CERTIFICATE_DIFFERS: &str = "ClientCertificateDiffers";
    /// On a Cluster: it names another etcd than the one that its control plane runs on.
    pub const ETCD_REPLACED: &str = "EtcdReplaced";
    /// On a Cluster: deletion waits for the runtime extensions that must agree before a Cluster is deleted.
    pub const WAITING_FOR_BEFORE_DELETE_HOOK: &str = "WaitingForBeforeDeleteHook";
    /// On a Cluster: etcd is ready, and its client certificate does not exist yet.
    pub const WAITING_FOR_CLIENT_CERTIFICATE: &str = "WaitingForClientCertificate";
    /// On a Cluster: deletion waits for workers, which need the control plane and so etcd.
    pub const WAITING_FOR_WORKERS_DELETION: &str = "WaitingForWorkersDeletion";
    /// On a Cluster: deletion waits for etcd's Machines.
    pub const WAITING_FOR_ETCD_DELETION: &str = "WaitingForEtcdDeletion";
    /// On a Cluster: deletion waits for the control plane's user, who has paused it.
    pub const CONTROL_PLANE_PAUSED: &str = "ControlPlanePaused";
    /// On a Cluster: etcd is deleted, and only Cluster API's own part of the deletion is left.
    pub const ETCD_DELETED: &str = "EtcdDeleted";
}

/// A condition before it is compared with what is in the status: no transition time yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Condition type.
    pub type_: &'static str,
    /// `Some(true)` is True, `Some(false)` is False, `None` is Unknown.
    pub status: Option<bool>,
    /// One of [`reasons`].
    pub reason: &'static str,
    /// What the object waits for, and what would help. It may be empty when all is well.
    pub message: String,
}

impl Draft {
    /// A condition that is True or False.
    #[must_use]
    pub fn new(type_: &'static str, status: bool, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Some(status), reason, message: message.into() }
    }

    /// A condition whose status is Unknown.
    #[must_use]
    pub fn unknown(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: None, reason, message: message.into() }
    }

    /// Takes the message of `before` if the two messages differ only in their last part, `answer`, and there only in
    /// numbers and identifiers: a port, a time, or the ID that a webhook gives each request. So the same failure is not
    /// reported again. In the part before `answer`, a number is a difference: it may be part of a name.
    #[must_use]
    pub fn in_the_words_of(self, before: &[Condition], answer: &str) -> Self {
        let Some(exactly) = self.message.strip_suffix(answer) else { return self };
        let says_the_same = |old: &&Condition| {
            let said = old.message.strip_prefix(exactly).filter(|_| old.type_ == self.type_);
            said.is_some_and(|said| words(said).eq(words(answer)))
        };
        let known = before.iter().find(says_the_same).map(|old| old.message.clone());
        match known {
            Some(message) => Self { message, ..self },
            None => self,
        }
    }

    /// The same for a message that reports a refusal: what was asked for, ": ", and the answer.
    #[must_use]
    pub fn in_known_words(self, before: &[Condition]) -> Self {
        let answer = answer_in(&self.message).to_owned();
        self.in_the_words_of(before, &answer)
    }
}

/// The API server's answer in a message of the form `what was asked: answer`.
#[must_use]
pub fn answer_in(refusal: &str) -> &str {
    refusal.split_once(": ").map_or(refusal, |(_, answer)| answer)
}

/// A word of this many hexadecimal digits counts as an identifier even if no decimal digit is among them. A shorter one
/// may be a real word, such as "bad".
const IDENTIFIER: usize = 4;

/// The words of a text without numbers and identifiers.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_hex = |word: &str| word.len() >= IDENTIFIER && word.chars().all(|sign| sign.is_ascii_hexdigit());
    let is_identifier = move |word: &str| is_hex(word) || word.contains(|sign: char| sign.is_ascii_digit());
    let words = text.split(|sign: char| !sign.is_alphanumeric());
    words.filter(move |word| !word.is_empty() && !is_identifier(word))
}

/// Makes conditions out of drafts. A condition whose status has not changed keeps its transition time from `before`.
#[must_use]
pub fn from_drafts(before: &[Condition], drafts: Vec<Draft>, generation: Option<i64>, now: &Time) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = drafts
        .into_iter()
        .map(|draft| {
            let status = match draft.status {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            };
            let last_transition_time = before
                .iter()
                .find(|old| old.type_ == draft.type_ && old.status == status)
                .map_or_else(|| now.clone(), |old| old.last_transition_time.clone());
            Condition {
                type_: draft.type_.to_owned(),
                status: status.to_owned(),
                reason: draft.reason.to_owned(),
                message: draft.message,
                observed_generation: generation,
                last_transition_time,
            }
        })
        .collect();
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions
}

/// Whether each condition of `after` has the status that it had before, so that only reasons and messages differ.
#[must_use]
pub fn same_states(before: &[Condition], after: &[Condition]) -> bool {
    after.iter().all(|new| before.iter().any(|old| old.type_ == new.type_ && old.status == new.status))
}

/// Whether each condition of `after` has the status and the reason that it had before.
#[must_use]
pub fn same_reasons(before: &[Condition], after: &[Condition]) -> bool {
    let is_same = |old: &Condition, new: &Condition| {
        old.type_ == new.type_ && old.status == new.status && old.reason == new.reason
    };
    after.iter().all(|new| before.iter().any(|old| is_same(old, new)))
}

/// Whether the condition `type_` is True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let first = from_drafts(&[], vec![Draft::new(READY, false, reasons::SCALING_UP, "1 of 3")], Some(1), &at(10));
        let same = from_drafts(&first, vec![Draft::new(READY, false, reasons::SCALING_UP, "2 of 3")], Some(2), &at(20));
        assert_eq!(same[0].last_transition_time, at(10));
        assert_eq!((same[0].message.as_str(), same[0].observed_generation), ("2 of 3", Some(2)));
        let turned = from_drafts(&same, vec![Draft::new(READY, true, reasons::READY, "")], Some(2), &at(30));
        assert_eq!(turned[0].last_transition_time, at(30));
        assert!(is_true(&turned, READY));
    }

    #[test]
    fn only_words_differ_where_status_and_reason_are_the_same() {
        let one = |draft| from_drafts(&[], vec![draft], Some(1), &at(10));
        let before = one(Draft::new(READY, false, reasons::SCALING_UP, "1 of 3"));
        assert!(same_reasons(&before, &one(Draft::new(READY, false, reasons::SCALING_UP, "2 of 3"))));
        assert!(!same_reasons(&before, &one(Draft::new(READY, false, reasons::REFUSED, "1 of 3"))));
        assert!(!same_reasons(&before, &one(Draft::unknown(READY, reasons::SCALING_UP, "1 of 3"))));
        assert!(!same_reasons(&[], &before) && same_reasons(&before, &[]));
    }

    #[test]
    fn the_same_failure_with_other_numbers_keeps_its_words() {
        const SAID: &str = "creating demo-etcd-1: admission webhook \"p.example.org\" denied the request at 18:37:40Z \
                            (request 4f0c2a7e-cafe-4bad-beef-0123456789ab)";
        let drafted = |message: &str| Draft::new(READY, false, reasons::REFUSED, message);
        let before = from_drafts(&[], vec![drafted(SAID)], Some(1), &at(10));
        let told = |message: &str| drafted(message).in_the_words_of(&before, answer_in(message)).message;
        let varied = SAID.replace("18:37:40Z", "18:37:41Z").replace("4f0c2a7e-cafe", "aaaaaaaa-1234");
        assert_ne!(varied, SAID);
        assert_eq!(told(&varied), SAID, "another time and request are not news");
        for news in [SAID.replace("denied", "delayed"), SAID.replace("demo-etcd-1", "demo-etcd-2")] {
            assert_eq!(told(&news), news);
        }
        let of_another = Draft { type_: DELETING, ..drafted(&varied) };
        assert_eq!(of_another.in_the_words_of(&before, answer_in(&varied)).message, varied, "another condition");
        let begun = drafted("2 of 3: refused 7");
        assert_eq!(begun.clone().in_the_words_of(&before, "something else"), begun, "it does not end with the answer");
        let counted = from_drafts(&[], vec![drafted("1 of 3: refused 6")], Some(1), &at(10));
        assert_eq!(begun.in_the_words_of(&counted, "refused 7").message, "2 of 3: refused 7", "the count is news");
    }
}
