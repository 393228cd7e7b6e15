//! Everything that a decision may depend on, as plain data.

pub mod host;
pub mod probe;

use api::etcd_cluster::MemberStatus;
use api::{EtcdCluster, names};
use controller_support::loose::{ClusterView, DockerMachineView, MachineView};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was seen in one reconcile.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When.
    pub now: Timestamp,
    /// The EtcdCluster as it was last read or written.
    pub etcd: Arc<EtcdCluster>,
    /// The Cluster that it is for.
    pub cluster: ClusterLink,
    /// Its certificates and the Secrets made from them.
    pub certificates: Certificates,
    /// `clientUrls` of the init Secret, if that exists.
    pub init_urls: Option<String>,
    /// Resource version of the init Secret, if that exists: each admission is a change of just this version.
    pub init_version: Option<String>,
    /// UIDs of the Machines that may join by the init Secret, and since when. `None`: it does not say so, and all may.
    pub admitted: Option<BTreeMap<String, Timestamp>>,
    /// When a Machine got its bootstrap data, by name of the Machine.
    pub bootstrapped: BTreeMap<String, Timestamp>,
    /// The template of the members' infrastructure.
    pub template: Template,
    /// Machines that this EtcdCluster controls, by name. Where a Machine has no addresses, they are those of its
    /// DockerMachine.
    pub machines: BTreeMap<String, MachineView>,
    /// DockerMachines that have addresses while their Machines have none, by name of the Machine.
    pub docker_machines: BTreeMap<String, DockerMachineView>,
    /// What each Machine's health check said, by name of the Machine.
    pub checks: BTreeMap<String, Check>,
    /// Where the member of a Machine answered, if that is not at the Machine's address, by name of the Machine.
    pub elsewhere: BTreeMap<String, String>,
    /// etcd's own view.
    pub membership: Membership,
}

/// The Cluster that an EtcdCluster is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterLink {
    /// No Cluster names it. The text says what would.
    None(String),
    /// One Cluster names it.
    One(Box<ClusterView>),
    /// Several name it.
    Several(Vec<String>),
    /// Its label says one Cluster, which names another etcd (or none but that of the text).
    UsesAnother(String),
}

/// The CA and what is derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Not looked up: there is no Cluster yet.
    Unknown,
    /// There is no CA.
    NoCa,
    /// The Secret with the CA was made for the EtcdCluster of this name, and goes with it.
    OfAnother(String),
    /// The Secret cannot be used; the text says why.
    Invalid(String),
    /// The CA is not the one that has signed the API servers' client certificate.
    Replaced,
    /// There is a CA.
    Ca {
        /// The Secret with the CA certificate for the control plane holds just that.
        control_plane_ca: bool,
        /// The API servers' client certificate is kept ready.
        staged_client: bool,
    },
}

/// The template that the members' infrastructure is cloned from.
#[derive(Clone, Debug)]
pub enum Template {
    /// It does not exist, or its kind does not; the text says which.
    NotFound(String),
    /// Nothing is known: it was not looked up, or the API server did not answer. The text says which.
    Unknown(String),
    /// It is there.
    Found {
        /// The template.
        template: Arc<DynamicObject>,
        /// Kind of the clones.
        clones: ApiResource,
    },
}

/// What a health check said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// `/health` answered 200 and true over TLS.
    Healthy {
        /// What the member says of itself.
        report: Report,
    },
    /// It did not; the text says why.
    Failing(String),
    /// There was nothing to ask: the Machine has no address, and its member was never seen.
    NoAddress,
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its ID.
    pub member_id: u64,
    /// ID of the cluster that it is in.
    pub cluster_id: u64,
    /// ID of the leader; 0 if there is none.
    pub leader: u64,
    /// etcd version.
    pub version: String,
    /// Size of its database in bytes.
    pub database_size: i64,
}

/// etcd's own view of its members, from a linearizable read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Nobody could be asked yet: no Machine has an address, or none answers.
    NotAsked,
    /// Asked without success; the text says why.
    Unknown(String),
    /// The members.
    Known {
        /// ID of the cluster.
        cluster_id: u64,
        /// Members by ID.
        members: BTreeMap<u64, Member>,
    },
}

/// One entry of the member list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name; empty until it has started.
    pub name: String,
    /// URLs for its peers.
    pub peer_urls: Vec<String>,
    /// URLs for clients; empty until it has started.
    pub client_urls: Vec<String>,
    /// It does not vote yet.
    pub learner: bool,
}

impl Observation {
    /// Machines that are not being deleted.
    pub fn live_machines(&self) -> impl Iterator<Item = &MachineView> {
        self.machines.values().filter(|machine| !machine.deleting)
    }

    /// The member list, if it is known.
    #[must_use]
    pub fn members(&self) -> Option<&BTreeMap<u64, Member>> {
        match &self.membership {
            Membership::Known { members, .. } => Some(members),
            Membership::NotAsked | Membership::Unknown(_) => None,
        }
    }

    /// Machine of a member: by the recorded member ID first, then by peer URL, as an address may have changed hands.
    #[must_use]
    pub fn machine_of(&self, id: u64, member: &Member) -> Option<&MachineView> {
        let recorded = self.recorded(id).map(|status| status.machine.as_str()).filter(|name| !name.is_empty());
        if let Some(machine) = recorded.and_then(|name| self.machines.get(name)) {
            return Some(machine);
        }
        let hosts: BTreeSet<&str> = member.peer_urls.iter().filter_map(|url| host(url)).collect();
        self.machines
            .values()
            .find(|machine| machine.addresses.iter().any(|(_, address)| hosts.contains(address.as_str())))
    }

    /// The member that runs on a Machine.
    #[must_use]
    pub fn member_on(&self, machine: &str) -> Option<(u64, &Member)> {
        let members = self.members()?;
        members
            .iter()
            .map(|(id, member)| (*id, member))
            .find(|(id, member)| self.machine_of(*id, member).is_some_and(|found| found.name == machine))
    }

    /// What the status says of a member.
    #[must_use]
    pub fn recorded(&self, id: u64) -> Option<&MemberStatus> {
        let id = hex(id);
        self.etcd.status.as_ref()?.members.iter().find(|member| member.id == id)
    }

    /// Whether the member of a Machine is healthy. Another member that answers at its address says nothing of it.
    #[must_use]
    pub fn is_healthy(&self, machine: &str) -> bool {
        let Some(Check::Healthy { report }) = self.checks.get(machine) else { return false };
        self.member_on(machine).is_some_and(|(id, _)| id == report.member_id)
    }

    /// Address of a Machine by the EtcdCluster's order of preference.
    #[must_use]
    pub fn address<'a>(&self, machine: &'a MachineView) -> Option<&'a str> {
        address(machine, &self.etcd.spec.address_types)
    }

    /// Where the member of a Machine serves clients: where it has just answered, or else at the Machine's address, or as
    /// long as that has none where it did last. Some infrastructure takes the addresses of a machine away while that is off.
    #[must_use]
    pub fn client_url(&self, machine: &MachineView) -> Option<String> {
        let answered = self.elsewhere.get(&machine.name).cloned();
        let present = || self.address(machine).map(names::client_url);
        let last = || self.last_on(machine).map(|member| member.client_url.clone()).filter(|url| !url.is_empty());
        answered.or_else(present).or_else(last)
    }

    /// The member that the status names for a Machine.
    #[must_use]
    pub fn last_on(&self, machine: &MachineView) -> Option<&MemberStatus> {
        self.etcd.status.as_ref()?.members.iter().find(|member| member.machine == machine.name)
    }

    /// Machines whose member is a healthy voter, with their addresses.
    pub fn healthy_voters(&self) -> impl Iterator<Item = (&MachineView, &str)> {
        self.live_machines().filter_map(|machine| {
            let (_, member) = self.member_on(&machine.name)?;
            let answered = self.elsewhere.get(&machine.name).and_then(|url| host(url));
            let address = answered.or_else(|| self.address(machine))?;
            (!member.learner && self.is_healthy(&machine.name)).then_some((machine, address))
        })
    }

    /// Whether a Machine may become a member, or is one: it has bootstrap data, or may have by now.
    #[must_use]
    pub fn is_admitted(&self, machine: &MachineView) -> bool {
        machine.data_secret.is_some()
            || self.admitted_since(machine).is_some()
            || self.bootstrapped.contains_key(&machine.name)
    }

    /// Since when a Machine may join, by the init Secret.
    #[must_use]
    pub fn admitted_since(&self, machine: &MachineView) -> Option<Timestamp> {
        self.admitted.as_ref()?.get(&machine.uid).copied()
    }

    /// Seconds since a Machine could begin to boot: since it has its bootstrap data or was to get them, or since it was
    /// created if neither is known.
    #[must_use]
    pub fn age(&self, machine: &MachineView) -> i64 {
        let since = self.bootstrapped.get(&machine.name).copied().or_else(|| self.admitted_since(machine));
        let since = since.or_else(|| machine.created.as_ref().map(|created| created.0));
        since.map_or(0, |since| self.now.as_second() - since.as_second())
    }
}

/// Address of a Machine: the first of the first type that it has.
#[must_use]
pub fn address<'a>(machine: &'a MachineView, preference: &[api::meta::AddressType]) -> Option<&'a str> {
    preference
        .iter()
        .find_map(|wanted| machine.addresses.iter().find(|(type_, _)| type_ == wanted.as_str()))
        .map(|(_, address)| address.as_str())
}

/// Whose member list is taken, of the clusters that answer at the addresses of Machines: the recorded one, or the only
/// one. An address may have gone to a member of another etcd that trusts the same CA.
#[must_use]
pub fn trusted_cluster(recorded: &str, answering: &BTreeSet<u64>) -> Option<u64> {
    let known = answering.iter().find(|id| hex(**id) == recorded);
    known.or_else(|| answering.first().filter(|_| answering.len() == 1)).copied()
}

/// An ID as etcdctl prints it.
#[must_use]
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}

/// Host of a URL, without brackets.
#[must_use]
pub fn host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    if let Some(bracketed) = authority.strip_prefix('[') {
        return bracketed.split_once(']').map(|(host, _)| host);
    }
    Some(authority.rsplit_once(':').map_or(authority, |(host, _)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_is_not_asked_who_our_members_are() {
        let set = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<u64>>();
        assert_eq!(trusted_cluster("", &set(&[0xc])), Some(0xc));
        assert_eq!(trusted_cluster("c", &set(&[0xa, 0xc])), Some(0xc));
        assert_eq!(trusted_cluster("", &set(&[0xa, 0xc])), None);
        assert_eq!(trusted_cluster("b", &set(&[0xa, 0xc])), None);
        assert_eq!(trusted_cluster("b", &set(&[0xc])), Some(0xc), "restored from a snapshot, it has a new ID");
        assert_eq!(trusted_cluster("c", &set(&[])), None);
    }

    #[test]
    fn hosts_of_urls() {
        assert_eq!(host("https://10.0.0.1:2380"), Some("10.0.0.1"));
        assert_eq!(host("https://[fd00::1]:2380"), Some("fd00::1"));
        assert_eq!(host("https://member/"), Some("member"));
        assert_eq!(host("nonsense"), None);
    }
}
