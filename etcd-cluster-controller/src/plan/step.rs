//! Everything that this controller ever does.

use crate::quorum::{ClusterGoing, MayGo, MayRemove};
use api::etcd_cluster::{LastRemediation, Operation, RemovalState};
use std::collections::BTreeMap;

/// The answer to "what next?".
pub type Plan = controller_support::plan::Plan<Step>;

/// Why a Machine is deleted whose EtcdCluster stays.
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
    /// It serves nobody, and will not become a voter by all appearances.
    Stuck,
}

impl WhyDeleted {
    /// The same for people.
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

/// One step. At most one changes the membership, and it is the only one of its reconcile. Not `Clone`: what takes something
/// away holds the permission for it, which is good for one time.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Put our finalizer on the EtcdCluster, and into its annotations what a move of the management cluster must keep.
    Record {
        /// Whether the finalizer is missing.
        finalizer: bool,
        /// Annotations to set, or to remove (`None`).
        annotations: BTreeMap<&'static str, Option<String>>,
    },
    /// Make whatever of the certificates is missing.
    EnsureCertificates,
    /// Put the label back on the CA Secret, which is there without it.
    LabelCa,
    /// Tell joining members where the voters are.
    PublishInit {
        /// Address of the first voter.
        address: String,
        /// Client URLs of the voters, sorted, separated by commas.
        client_urls: String,
        /// The cluster's ID in hexadecimal.
        cluster_id: String,
        /// Those that are admitted so far, in the form of the init Secret.
        admitted: String,
    },
    /// Make one more Machine. It is held back: it does not boot, and is not a member, before it is admitted.
    CreateMachine {
        /// Number in the name of the Machine, its config and its infrastructure. None before had it.
        number: u64,
        /// Failure domain that it is made for. `None`: the infrastructure has none.
        failure_domain: Option<String>,
        /// Names of the Machines that the decision was made on: it is off if there are others by now.
        expected: Vec<String>,
    },
    /// Let a Machine that is held back become a member: the one step that adds to the membership. It is off if anybody
    /// has been admitted in between.
    Admit {
        /// Name of the Machine.
        name: String,
        /// All that are admitted then, in the form of the init Secret.
        admitted: String,
    },
    /// Delete a Machine that is held back and made from an earlier spec: it is made again from the present one.
    DeleteHeldBack {
        /// Name of the Machine.
        name: String,
        /// Why it may go.
        proof: MayGo,
    },
    /// Let a DockerMachine count as provisioned.
    SetProviderId {
        /// Name of the Machine.
        machine: String,
        /// What `spec.providerID` becomes.
        provider_id: String,
    },
    /// Have Cluster API keep a Machine that is deleted until its member has left etcd.
    AddHook {
        /// Name of the Machine.
        machine: String,
    },
    /// Write down that the member of a Machine is about to be replaced. The status carries it.
    BeginRemediation(LastRemediation),
    /// Delete a Machine that has our hook: Cluster API keeps it until its member has left etcd.
    DeleteMachine {
        /// Name of the Machine.
        name: String,
        /// Why.
        why: WhyDeleted,
    },
    /// Write down what is about to be done to etcd, before it is done. The status carries it.
    Begin(Operation),
    /// Write down how an operation ended: what became of the member of a removal. `None`: it is off, as far as can be
    /// known. A removal stays recorded all the same, as etcd may carry it out later.
    Finish(Option<RemovalState>),
    /// Have another member lead.
    MoveLeader {
        /// The member that leads.
        from: u64,
        /// The member that is to lead.
        to: u64,
    },
    /// Remove a member from etcd.
    RemoveMember(MayRemove),
    /// Write down that a Machine is about to be let go that has not become a member. The status carries it.
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
        /// Names of those that wait for our hook.
        release: Vec<String>,
        /// Why they may go.
        proof: ClusterGoing,
    },
    /// Let the EtcdCluster go.
    RemoveFinalizer,
}

impl Step {
    /// Whether it takes something away that cannot be brought back. Such a step is planned again from what is read live,
    /// and done only if it comes out the same. To call an operation off is one: the list that is known may have been
    /// read before the last call ended, which etcd may have carried out. The live one is asked for after that. That a
    /// member is gone is true of every later list as well, as IDs are never used again.
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

    /// Whether it changes an object that is watched, so that the next reconcile comes with what it has changed. Not what is
    /// done to etcd, nor what the status itself carries: the status shows it before anything else happens.
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

    /// What is done, for conditions.
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
