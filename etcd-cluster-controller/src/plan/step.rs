//! Everything that this controller ever does.

use crate::quorum::{ClusterGoing, MayGo, MayRemove};
use api::etcd_cluster::{LastRemediation, Operation, RemovalState};
use std::collections::BTreeMap;

/// The answer to "what next?".
pub type Plan = controller_support::plan::Plan<Step>;

/// Why a Machine is deleted while its EtcdCluster stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyDeleted {
    /// Its member has failed for long enough, and a replacement is up or not waited for.
    Unhealthy,
    /// There are more Machines than wanted.
    Surplus,
    /// It does not match the spec, and is not needed any more.
    Outdated,
    /// A MachineHealthCheck or a person has marked it for remediation.
    Marked,
    /// It has no voter, and by all appearances will not get one.
    Stuck,
}

impl WhyDeleted {
    /// The reason as a text for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Unhealthy => "its member has failed for too long",
            Self::Surplus => "there are more members than wanted",
            Self::Outdated => "it does not match the spec",
            Self::Marked => "it is marked for remediation",
            Self::Stuck => "it has no member that votes, and its time is over",
        }
    }
}

/// One step. A reconcile takes one step, and a step changes the membership at most once. Not `Clone`: a step that takes
/// something away holds the permission for it, which is valid once.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Add our finalizer to the EtcdCluster, and record in its annotations what a move of the management cluster must
    /// keep.
    Record {
        /// Whether the finalizer is missing.
        finalizer: bool,
        /// Annotations to set, or to remove (`None`).
        annotations: BTreeMap<&'static str, Option<String>>,
    },
    /// Make the certificates that are missing.
    EnsureCertificates,
    /// Put back the label that the CA Secret has lost.
    LabelCa,
    /// Publish where joining members find the voters.
    PublishInit {
        /// Address of the first voter.
        address: String,
        /// Client URLs of the voters, sorted, separated by commas.
        client_urls: String,
        /// The cluster's ID in hexadecimal.
        cluster_id: String,
        /// The Machines that are admitted so far, in the form of the init Secret.
        admitted: String,
    },
    /// Create one more Machine. It is held back: until it is admitted, it does not boot and is not a member.
    CreateMachine {
        /// Number in the name of the Machine, its config and its infrastructure. No earlier Machine had it.
        number: u64,
        /// Failure domain of the Machine. `None`: the infrastructure has none.
        failure_domain: Option<String>,
        /// Names of the Machines that the decision was based on. If there are other Machines by now, the step is
        /// outdated.
        expected: Vec<String>,
    },
    /// Let a Machine that is held back become a member. This is the only step that adds to the membership. If any
    /// Machine has been admitted in between, the step is outdated.
    Admit {
        /// Name of the Machine.
        name: String,
        /// All Machines that are admitted after the step, in the form of the init Secret.
        admitted: String,
    },
    /// Delete a Machine that is held back and was made from an earlier spec, so that it is made again from the present
    /// one.
    DeleteHeldBack {
        /// Name of the Machine.
        name: String,
        /// Why it may go.
        proof: MayGo,
    },
    /// Set the provider ID of a DockerMachine, so that it counts as provisioned.
    SetProviderId {
        /// Name of the Machine.
        machine: String,
        /// What `spec.providerID` becomes.
        provider_id: String,
    },
    /// Add our pre-terminate hook, so that Cluster API keeps a deleted Machine until its member has left etcd.
    AddHook {
        /// Name of the Machine.
        machine: String,
    },
    /// Record in the status that the member of a Machine is about to be replaced.
    BeginRemediation(LastRemediation),
    /// Delete a Machine that has our hook: Cluster API keeps it until its member has left etcd.
    DeleteMachine {
        /// Name of the Machine.
        name: String,
        /// Why.
        why: WhyDeleted,
    },
    /// Record in the status what is about to be done to etcd, before it is done.
    Begin(Operation),
    /// Record how an operation ended: what happened to the member of a removal. `None`: the operation is off, as far as
    /// is known. A removal stays recorded nevertheless, because etcd may carry it out later.
    Finish(Option<RemovalState>),
    /// Move leadership to another member.
    MoveLeader {
        /// The member that leads.
        from: u64,
        /// The member that is to lead.
        to: u64,
    },
    /// Remove a member from etcd.
    RemoveMember(MayRemove),
    /// Record in the status that a Machine is about to be let go which has not become a member.
    NoteRelease {
        /// UID of the Machine.
        machine_uid: String,
    },
    /// Let Cluster API finish the deletion of a Machine.
    ReleaseHook {
        /// Name of the Machine.
        machine: String,
        /// Why it may go.
        proof: MayGo,
    },
    /// Delete Machines, and release those that wait: the EtcdCluster is being deleted.
    DeleteMachines {
        /// Names of those to delete.
        delete: Vec<String>,
        /// Names of those that our hook keeps.
        release: Vec<String>,
        /// Why they may go.
        proof: ClusterGoing,
    },
    /// Remove our finalizer, so that the EtcdCluster can go.
    RemoveFinalizer,
}

impl Step {
    /// Whether the step takes something away that cannot be brought back. Such a step is planned again from live state,
    /// and done only if the result is the same.
    ///
    /// Calling an operation off is such a step. The known list may have been read before the last call ended, and etcd
    /// may have carried out that call. The live list is requested after that. Recording that a member is gone is not:
    /// every later list says the same, because etcd never uses an ID again.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(
            self,
            Self::DeleteMachine { .. }
                | Self::MoveLeader { .. }
                | Self::RemoveMember(_)
                | Self::ReleaseHook { .. }
                | Self::Finish(None)
        )
    }

    /// Whether the step changes a watched object, whose event brings the change into the next reconcile. Then the
    /// status may be written later. Steps on etcd do not count, and neither do steps that the status records: the
    /// status has to show those before anything else happens.
    #[must_use]
    pub fn is_observed_at_once(&self) -> bool {
        match self {
            Self::Record { .. }
            | Self::EnsureCertificates
            | Self::LabelCa
            | Self::PublishInit { .. }
            | Self::CreateMachine { .. }
            | Self::Admit { .. }
            | Self::DeleteHeldBack { .. }
            | Self::SetProviderId { .. }
            | Self::AddHook { .. }
            | Self::DeleteMachine { .. } => true,
            Self::BeginRemediation(_)
            | Self::Begin(_)
            | Self::Finish(_)
            | Self::MoveLeader { .. }
            | Self::RemoveMember(_)
            | Self::NoteRelease { .. }
            | Self::ReleaseHook { .. }
            | Self::DeleteMachines { .. }
            | Self::RemoveFinalizer => false,
        }
    }

    /// The step in words, for conditions.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Record { .. } => {
                "writing the finalizer or the annotations that a move or a restore must keep".to_owned()
            }
            Self::EnsureCertificates => "making the certificates".to_owned(),
            Self::LabelCa => "putting the label back on the CA Secret".to_owned(),
            Self::PublishInit { .. } => "publishing where new members join etcd".to_owned(),
            Self::CreateMachine { number, .. } => format!("creating Machine number {number}"),
            Self::Admit { name, .. } => format!("admitting Machine {name}"),
            Self::DeleteHeldBack { name, .. } => {
                format!("deleting Machine {name}, to make it again from the present spec")
            }
            Self::SetProviderId { machine, .. } => format!("telling Cluster API that Machine {machine} is provisioned"),
            Self::AddHook { machine } => format!("protecting Machine {machine} with a pre-terminate hook"),
            Self::BeginRemediation(record) => format!("about to replace the member of Machine {}", record.machine),
            Self::DeleteMachine { name, why } => format!("deleting Machine {name}: {}", why.describe()),
            Self::Begin(operation) => format!("about to begin {operation}"),
            Self::Finish(_) => "recording that the operation on etcd has ended".to_owned(),
            Self::MoveLeader { from, to } => format!("moving leadership from member {from:x} to {to:x}"),
            Self::RemoveMember(permission) => format!("removing member {:x} from etcd", permission.member_id()),
            Self::NoteRelease { machine_uid } => format!("about to let the Machine with UID {machine_uid} go"),
            Self::ReleaseHook { machine, .. } => format!("letting Machine {machine} go"),
            Self::DeleteMachines { delete, release, .. } => {
                let names: Vec<&str> = delete.iter().chain(release).map(String::as_str).collect();
                format!("deleting Machines {}", names.join(", "))
            }
            Self::RemoveFinalizer => String::new(),
        }
    }
}
