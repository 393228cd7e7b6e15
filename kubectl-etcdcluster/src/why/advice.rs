//! The rule behind each reason, and what a person can do about it.

use api::conditions::reasons as r;

/// The advice for a reason. `NAME` and `NAMESPACE` stand for those of the EtcdCluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The rule that leads to it.
    pub rule: &'static str,
    /// What a person can do; empty if nothing needs to be done.
    pub what_to_do: &'static str,
}

const ADMISSION: &str = "growth: a Machine is admitted when every voter is healthy, and no more are on their way than learners may catch up side by side";
const SAFE: &str = "retire: a member leaves etcd only if the others then survive as many failures as before, or as many as a healthy cluster does, and enough of the endpoints that API servers use stay alive";
const REPAIR: &str = "repair: an unhealthy voter is replaced, one at a time, if the others have a quorum without it";
const ROLLOUT: &str =
    "rollout: Machines that do not match the spec are replaced, new members first, while all others are healthy";
const LINK: &str = "link: etcd is made for the one Cluster that names it";
const CERTIFICATES: &str =
    "certificates: members trust the CA that they were made with, and it is never replaced beside them";
const REMEDIATION: &str =
    "marked: a Machine that is marked for remediation is replaced when nothing else is to be done";
const MACHINE: &str = "Look at the Machine, its infrastructure and its console: kubectl describe machine -n NAMESPACE MACHINE. A Machine that will never boot may be deleted: another one is made when there is room.";

/// The advice for a reason.
#[must_use]
pub fn advice(reason: &str) -> Advice {
    let (rule, what_to_do) = match reason {
        r::WAITING_FOR_CLUSTER => {
            (LINK, "Give the Cluster the annotation etcdcluster.cluster.x-k8s.io/managed-external-etcd: NAME")
        }
        r::CLUSTER_USES_ANOTHER_ETCD => (
            LINK,
            "Correct the label cluster.x-k8s.io/cluster-name of the EtcdCluster, or the annotation of the Cluster, as the message says.",
        ),
        r::CLAIMED_BY_SEVERAL_CLUSTERS => {
            (LINK, "Take the annotation managed-external-etcd from all Clusters but one.")
        }
        r::MACHINES_NOT_OWNED => (
            "ownership: nothing is made beside Machines of an earlier object that may carry the members",
            "Restore the objects with their UIDs, or take the label from Machines that are not part of this etcd.",
        ),
        r::PAUSED => (
            "paused: a pause stops everything, a deletion too",
            "Go on with: kubectl etcdcluster rollout resume -n NAMESPACE NAME. Where the Cluster is paused, take away its spec.paused or its annotation cluster.x-k8s.io/paused.",
        ),
        r::MOVED_AWAY => (
            "paused: what clusterctl has moved to another management cluster is left alone here",
            "If it has been moved, end that: kubectl etcdcluster move. If it has not, remove the annotation that the message names.",
        ),
        r::DELETING => (
            "deletion: Machines go first, then the EtcdCluster",
            "Look at what its Machines wait for: kubectl describe machines -n NAMESPACE -l cluster.x-k8s.io/etcd-cluster=NAME",
        ),
        r::DELETION_NOT_CONFIRMED => (
            "deletion: an etcd that has begun is deleted only with a person's word",
            "If its data may go: kubectl annotate etcdclusters.etcdcluster.cluster.x-k8s.io -n NAMESPACE NAME etcdcluster.cluster.x-k8s.io/confirm-deletion=NAME",
        ),
        r::TEMPLATE_INVALID | r::TEMPLATE_NOT_FOUND | r::WAITING_FOR_TEMPLATE => (
            "growth: Machines are made from the template that spec.infrastructureTemplate names",
            "Apply the template or install its provider, or name another one in spec.infrastructureTemplate.",
        ),
        r::WAITING_FOR_CERTIFICATES => (CERTIFICATES, "If it lasts, look at the manager's log."),
        r::SECRET_INVALID => (
            CERTIFICATES,
            "Restore the Secret that the message names from a backup. If a client certificate has expired, clear what Ready names first.",
        ),
        r::NAME_TAKEN => (
            "growth: names follow from the EtcdCluster's, and objects of others are left alone",
            "Rename or delete the object that the message names.",
        ),
        r::REFUSED => (
            "every write needs the API server's consent",
            "Most often a permission is missing: apply again what is installed (config/default, another folder of config, or the release) of the manager's own version.",
        ),
        r::WAITING_FOR_CLUSTER_INFRASTRUCTURE => (
            "growth: no Machine is made before the infrastructure of the Cluster has told its failure domains",
            "Look at the Cluster and its infrastructure object: kubectl describe cluster -n NAMESPACE",
        ),
        r::WAITING_FOR_MACHINE_ADDRESS | r::WAITING_FOR_MEMBER => (ADMISSION, MACHINE),
        r::MACHINE_NOT_BOOTING => (
            "growth: a Machine has spec.healthCheck.startupGraceSeconds to become a member; after that the next one is admitted, if that is safe",
            MACHINE,
        ),
        r::WAITING_FOR_PROMOTION => (
            "growth: a learner votes when it has caught up; until then others join only up to the cluster's max-learners",
            "It takes a few seconds. If it lasts, look at the console of its Machine, and at the connections between the members (port 2380).",
        ),
        r::SCALING_UP => (ADMISSION, ""),
        r::SCALING_DOWN => {
            ("surplus: Machines that are too many are deleted at once, and their members leave one after the other", "")
        }
        r::WAITING_FOR_HEALTHY_MEMBERS => (
            ADMISSION,
            "Bring the member that the message names back: its machine, or the network to port 2379. Or delete its Machine to have it replaced. If it runs on no Machine, do as the message says.",
        ),
        r::MEMBER_UNHEALTHY => (
            REPAIR,
            "Bring the member that the message names back: its machine, or the network to port 2379. A voter that fails for spec.healthCheck.unhealthyAfterSeconds is replaced automatically, unless spec.remediation says otherwise.",
        ),
        r::HEALTH_UNKNOWN => (
            "a member whose health is unknown does not count as healthy, and is not blamed: nothing is held against a member that could not be checked",
            "Look at the network between the manager and the members (port 2379): the message says what keeps it from asking.",
        ),
        r::MEMBERSHIP_UNKNOWN => {
            ("nothing is added or removed while the member list cannot be read", "Bring a quorum of the members back.")
        }
        r::MEMBER_MISSING => (
            "stuck: the Machine of a member that somebody else has removed from etcd is replaced after spec.healthCheck.startupGraceSeconds",
            "Wait, or delete the Machine of the member that the message names to have it replaced at once. With spec.remediation.mode Report, delete it.",
        ),
        r::REPLACING_MEMBER => (REPAIR, ""),
        r::WAITING_FOR_REMEDIATION => (REMEDIATION, "Clear what comes first: the message names it."),
        r::REMEDIATION_DELAYED => (
            "spec.remediation limits how fast replacements that fail too are replaced",
            "Find out why the replacement fails: the image, the template, the network.",
        ),
        r::REMEDIATION_LIMIT_REACHED => (
            "spec.remediation.maxRetry limits how many replacements in a row are replaced",
            "Find out why the replacements fail, then delete the Machine that the message names.",
        ),
        r::CLUSTER_ID_CHANGED => (
            "identity: another etcd cluster is never adopted until you accept it",
            "After a restore, accept the new ID with the command that the message has. Otherwise look for another etcd at the addresses of the Machines.",
        ),
        r::WAITING_FOR_SAFE_REMOVAL => (
            SAFE,
            "Wait until the control plane has rolled out, or until another member has joined or recovered. If API servers no longer need the endpoint and cannot say so: docs/troubleshooting.md, The control plane does not roll out.",
        ),
        r::REMOVING_MEMBER => {
            ("operation: what is done to etcd is written down before, and finished before anything else begins", "")
        }
        r::WOULD_LOSE_DATA => (
            "retire: the only member is not given up while it does not answer",
            "Bring the member back. To give its data up, delete the Cluster.",
        ),
        r::QUORUM_LOST => (
            "nothing is removed while a quorum does not answer",
            "Bring machines back until a quorum answers. If all are well, look at the network between them and the manager.",
        ),
        r::NO_SPACE => (
            "alarms are reported, and end by a person's hand",
            "Compact and defragment, raise etcd.quotaBackendBytes, then disarm the alarm: the message has what ends it.",
        ),
        r::DATA_CORRUPT => (
            "corrupt: while members have different data, no member joins, and no member is removed, except members whose Machines a person deletes, and failed members whose Machines are gone",
            "Do as the message says: find out whose data is wrong, delete the Machine of that member, then disarm the alarm.",
        ),
        r::ALARM_RAISED => (
            "alarms are reported, and end by a person's hand",
            "Do as the message says: it names the member, and what ends the alarm.",
        ),
        r::NOT_INITIALIZED | r::NO_ENDPOINTS => {
            ("init: one Machine starts the etcd cluster, and all others join it", "")
        }
        r::ROLLING_OUT => (
            ROLLOUT,
            "Nothing, as long as it goes on. Where it waits for a control plane that does not roll out: docs/troubleshooting.md, The control plane does not roll out. To stop it: kubectl etcdcluster rollout pause -n NAMESPACE NAME. To take it back, put the earlier values into the spec.",
        ),
        r::NOT_READY | r::READY_UNKNOWN => (
            "MachinesReady adds up what Cluster API says of each Machine; nothing here depends on it",
            "Look at the Machines: kubectl describe machines -n NAMESPACE -l cluster.x-k8s.io/etcd-cluster=NAME. That one without a Node is not Ready is as it should be.",
        ),
        r::CERTIFICATE_EXPIRES => (
            "rollout: a Machine is replaced before the certificate of its member expires (spec.rolloutBefore)",
            "Nothing, as long as the rollout goes on.",
        ),
        r::MADE_FROM_AN_EARLIER_SPEC => (
            "rollout: with spec.rolloutStrategy.type OnDelete a person decides when Machines are replaced",
            "Delete the Machines that do not match, or set spec.rolloutStrategy.type to RollingUpdate.",
        ),
        r::UNSUPPORTED_VERSION_CHANGE => (
            "upgrade: etcd goes up one minor version at a time, from certain patch releases on, and back to an earlier minor version only while a member of that version stays",
            "Set a version that the message names, or the previous one, or correct the setting that the message names. To see what an edit would do: kubectl etcdcluster plan -f FILE",
        ),
        _ => ("this program does not know the reason: see docs/conditions.md of the manager's version", ""),
    };
    Advice { rule, what_to_do }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasons in the table in `docs/conditions.md` that say that all is well, or that nothing is done.
    const WELL: [&str; 16] = [
        "NotPaused",
        "NotDeleting",
        "CertificatesAvailable",
        "NotScalingUp",
        "NotScalingDown",
        "NotRemediating",
        "NotRollingOut",
        "NoReplicas",
        "NoMachinesDeleting",
        "NoAlarms",
        "MembersHealthy",
        "Initialized",
        "EndpointsAvailable",
        "Available",
        "UpToDate",
        "Ready",
    ];

    #[test]
    fn every_reason_of_an_etcd_cluster_has_a_rule() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/conditions.md");
        let text = std::fs::read_to_string(page).unwrap();
        let (_, table) = text.split_once("## Reasons of an EtcdCluster").unwrap();
        let (table, _) = table.split_once("\nWhat to do:").unwrap();
        let cells = table.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
        let reasons: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        assert!(reasons.len() > 40, "{reasons:?}");
        let unknown = advice("NoSuchReason");
        let missing: Vec<&&str> =
            reasons.iter().filter(|reason| !WELL.contains(reason) && advice(reason) == unknown).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
