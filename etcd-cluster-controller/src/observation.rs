//! Everything that a decision may depend on, as plain data.

pub mod host;
mod parts;
pub mod probe;

pub(crate) use parts::RENEW_BEFORE;
pub use parts::{Certificates, ClusterLink, Template};
pub use probe::{Membership, Outcome, Probe, Report, Snapshot, TargetKey};

use api::etcd_cluster::{MemberStatus, RemovedMember};
use api::etcdadm_config::EtcdadmConfigSpec;
use api::{EtcdCluster, names};
use controller_support::external::{DockerMachineView, MachineView};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use probe::ListFault;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Whether a Machine has our pre-terminate hook, so that its deletion waits for us.
pub(crate) fn has_hook(machine: &MachineView) -> bool {
    machine.annotations.contains_key(names::PRE_TERMINATE_HOOK_ANNOTATION)
}

/// What one reconcile has read.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When it was read.
    pub now: Timestamp,
    /// The EtcdCluster as it was last read or written.
    pub etcd: Arc<EtcdCluster>,
    /// The Cluster that it is for.
    pub cluster: ClusterLink,
    /// Its certificates and the Secrets made from them.
    pub certificates: Certificates,
    /// When the client certificate for Prometheus expires. `None` unless the spec asks for one, and there is one that
    /// the CA has signed.
    pub metrics_client_expires: Option<Timestamp>,
    /// `clientUrls` of the init Secret, if that exists.
    pub init_urls: Option<String>,
    /// The cluster ID in the init Secret, if the Secret has one.
    pub init_cluster_id: Option<String>,
    /// Resource version of the init Secret, if the Secret exists. An admission changes exactly this version of the
    /// Secret, or fails.
    pub init_version: Option<String>,
    /// UID of the init Secret, if that exists.
    pub init_uid: Option<String>,
    /// UIDs of the Machines that the init Secret lets join, each with the time since when. `None`: the Secret has no
    /// such list, so the bootstrap provider lets every Machine join.
    pub admitted: Option<BTreeMap<String, Timestamp>>,
    /// When a Machine got its bootstrap data, by name of the Machine.
    pub bootstrapped: BTreeMap<String, Timestamp>,
    /// The configs that Machines were made from, by name of the Machine.
    pub configs: BTreeMap<String, EtcdadmConfigSpec>,
    /// Names of our configs that no Machine uses or has used, and whose names no Machine takes: a Machine was begun and
    /// not made.
    pub begun: BTreeSet<String>,
    /// The learner limits that Machines were made with, by name of the Machine.
    pub learner_limits: BTreeMap<String, String>,
    /// The template of the members' infrastructure.
    pub template: Template,
    /// Machines that this EtcdCluster controls, by name. Where a Machine has no addresses, they are those of its
    /// DockerMachine.
    pub machines: BTreeMap<String, MachineView>,
    /// Names of Machines that carry this EtcdCluster's label, but that this EtcdCluster does not control. They belong
    /// to an earlier EtcdCluster of the same name, for example after a restore that created all objects again.
    pub not_owned: Vec<String>,
    /// Failure domains that the infrastructure of the Cluster reports. `None` unless the infrastructure is provisioned
    /// and the Cluster does not say so yet.
    pub reported_domains: Option<BTreeSet<String>>,
    /// DockerMachines that have addresses while their Machines have none, by name of the Machine.
    pub docker_machines: BTreeMap<String, DockerMachineView>,
    /// The latest probe of each Machine's member, by name of the Machine.
    pub probes: BTreeMap<String, Probe>,
    /// The latest probe of each stranger, by its ID.
    pub strangers: BTreeMap<u64, Probe>,
    /// etcd's own member list.
    pub membership: Membership,
    /// Members from which the leader has received something lately. `None`: not known.
    pub heard: Option<BTreeSet<u64>>,
    /// The time since when, at every moment, the latest check of at least one voter had succeeded. `None`: there is no
    /// such voter now.
    pub voters_answer_since: Option<Timestamp>,
}

/// One entry of the member list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name. Empty until the member has started.
    pub name: String,
    /// Peer URLs.
    pub peer_urls: Vec<String>,
    /// Client URLs. Empty until the member has started.
    pub client_urls: Vec<String>,
    /// It does not vote yet.
    pub learner: bool,
}

impl Observation {
    /// An observation of which only the EtcdCluster and its Cluster have been read.
    #[must_use]
    pub fn new(now: Timestamp, etcd: Arc<EtcdCluster>, cluster: ClusterLink) -> Self {
        Self {
            now,
            etcd,
            cluster,
            certificates: Certificates::Unknown,
            metrics_client_expires: None,
            init_urls: None,
            init_cluster_id: None,
            init_version: None,
            init_uid: None,
            admitted: None,
            bootstrapped: BTreeMap::new(),
            configs: BTreeMap::new(),
            begun: BTreeSet::new(),
            learner_limits: BTreeMap::new(),
            template: Template::Unknown("the infrastructure template has not been looked up".to_owned()),
            machines: BTreeMap::new(),
            not_owned: Vec::new(),
            reported_domains: None,
            docker_machines: BTreeMap::new(),
            probes: BTreeMap::new(),
            strangers: BTreeMap::new(),
            membership: Membership::NotAsked,
            heard: Some(BTreeSet::new()),
            voters_answer_since: None,
        }
    }

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

    /// Since when there is known to have been a quorum. A check of a voter is a linearizable read, which takes a
    /// quorum. Reading the member list takes one too, so the list counts where no voter's latest check has succeeded.
    #[must_use]
    pub fn quorum_since(&self) -> Option<Timestamp> {
        let listed_at = match self.membership {
            Membership::Known { at, .. } => Some(at),
            Membership::NotAsked | Membership::Unknown(_) => None,
        };
        self.voters_answer_since.or(listed_at)
    }

    /// Why the member list is not known.
    #[must_use]
    pub fn why_not_listed(&self) -> String {
        match &self.membership {
            Membership::Unknown(fault) => fault.to_string(),
            Membership::NotAsked => "no member answers".to_owned(),
            Membership::Known { .. } => String::new(),
        }
    }

    /// Takes over what the prober knows. As long as no cluster ID is recorded, any etcd that trusts the CA could pass
    /// for ours, for example one that has the address that a Machine was given. So until then only the member list of a
    /// new etcd counts: a list of one member, which is named after a Machine that has bootstrap data. That Machine must
    /// not have been released. A Machine that was released before it initialized etcd, and initializes it in its last
    /// moments, takes that etcd with it, and the next Machine initializes another one. The status says which Machines
    /// were released, because a watch may still show the hook.
    pub fn take(&mut self, snapshot: Snapshot) {
        // A probe of a stranger says nothing about a Machine, and nothing about the identity of the etcd cluster.
        self.probes.clear();
        self.strangers.clear();
        for (key, probe) in snapshot.probes {
            match key {
                TargetKey::Machine(name) => drop(self.probes.insert(name, probe)),
                TargetKey::Stranger(id) => drop(self.strangers.insert(id, probe)),
            }
        }
        self.membership = snapshot.membership;
        self.heard = snapshot.heard;
        self.voters_answer_since = snapshot.voters_answer_since;
        if let Membership::Known { cluster_id, members, .. } = &self.membership
            && self.recorded_cluster_id().is_none()
            && !self.is_new(members)
        {
            self.membership = Membership::Unknown(ListFault::NotNew { id: *cluster_id, members: members.len() });
        }
    }

    fn is_new(&self, members: &BTreeMap<u64, Member>) -> bool {
        let initialized = |member: &Member| {
            self.machines.get(&member.name).is_some_and(|machine| self.has_data(machine) && !self.is_released(machine))
        };
        members.len() == 1 && members.values().all(initialized)
    }

    /// Whether the status says that a Machine was released without having become a member.
    pub(crate) fn release_is_noted(&self, machine: &MachineView) -> bool {
        self.etcd.status.as_ref().is_some_and(|status| status.released_machine_uids.contains(&machine.uid))
    }

    /// Whether a Machine goes without waiting for us, or is about to. The status may say so before a watch shows it.
    pub(crate) fn is_released(&self, machine: &MachineView) -> bool {
        (machine.deleting && !has_hook(machine)) || self.release_is_noted(machine)
    }

    /// Whether etcd has a member that is named after this Machine, or the status has a member that runs on it. The
    /// Machine may be gone.
    pub(crate) fn is_of_a_member(&self, machine: &str) -> bool {
        let listed = self.members().is_some_and(|members| members.values().any(|member| member.name == machine));
        let status = self.etcd.status.as_ref();
        listed || status.is_some_and(|status| status.members.iter().any(|member| member.machine == machine))
    }

    /// The record of how a Machine's member left etcd, if it has left.
    pub(crate) fn removal_of(&self, machine: &MachineView) -> Option<&RemovedMember> {
        let records = &self.etcd.status.as_ref()?.removed_members;
        records.iter().find(|record| record.machine_uid == machine.uid)
    }

    /// The Machine that a member runs on. It is found in this order:
    /// - by the member's name, because names of Machines are never used again. A name that is not that of a Machine,
    ///   such as another host name, says nothing;
    /// - by the record of the member ID, because an address may have passed to another machine;
    /// - by the peer URL. If several Machines have the address, the answer is `None`: one of the machines may be gone
    ///   for good, and nothing says which;
    /// - by the member ID that answers at the addresses of exactly one Machine, because URLs need not match addresses
    ///   (NAT, host names).
    #[must_use]
    pub fn machine_of(&self, id: u64, member: &Member) -> Option<&MachineView> {
        // The name comes before the record: the record may be from a moment at which the only Machine that showed the
        // address was one whose machine is gone for good.
        if let Some(namesake) = self.machines.get(&member.name) {
            return Some(namesake);
        }
        let recorded = self.recorded(id).map(|status| status.machine.as_str()).filter(|name| !name.is_empty());
        if let Some(name) = recorded {
            return self.machines.get(name);
        }
        let hosts: BTreeSet<String> = member.peer_urls.iter().filter_map(|url| host::host_of(url)).collect();
        let by_address = |machine: &&MachineView| machine.addresses.iter().any(|(_, address)| hosts.contains(address));
        let at_address: Vec<&MachineView> = self.machines.values().filter(by_address).collect();
        match at_address.as_slice() {
            [] => self.answering(id),
            [machine] => Some(machine),
            _ => None,
        }
    }

    fn answering(&self, id: u64) -> Option<&MachineView> {
        let cluster = self.cluster_id()?;
        let mut answering = self.probes.iter().filter(|(_, probe)| {
            probe.report().is_some_and(|report| report.member_id == id && hex(report.cluster_id) == cluster)
        });
        let (machine, _) = answering.next()?;
        if answering.next().is_some() { None } else { self.machines.get(machine) }
    }

    /// Whether the other members hear a member that does not answer us: the leader has received something from it
    /// lately, or a healthy member follows it.
    #[must_use]
    pub fn is_heard(&self, id: u64) -> bool {
        let follows = |probe: &Probe| {
            let healthy = probe.run.kind_at(self.now, self.interval()) == probe::RunKind::Healthy;
            probe.report().is_some_and(|report| report.leader == id && report.fault().is_none() && healthy)
        };
        self.heard.as_ref().is_some_and(|heard| heard.contains(&id)) || self.probes.values().any(follows)
    }

    /// Whether a quorum answers, but it is not known whom the leader hears.
    pub(crate) fn is_hearing_unknown(&self) -> bool {
        self.heard.is_none() && self.members().is_some()
    }

    /// The recorded cluster ID, in hexadecimal.
    #[must_use]
    pub fn recorded_cluster_id(&self) -> Option<&str> {
        self.etcd.recorded_cluster_id()
    }

    /// The lists of endpoints that API servers may be using, as the Cluster hook's annotation has them: commas separate
    /// the URLs of a list, and semicolons separate the lists. If a person replaces the whole object, the annotation is
    /// lost, and the value that the status recorded last counts.
    #[must_use]
    pub fn endpoints_in_use(&self) -> Option<&str> {
        let annotated = self.etcd.annotations().get(names::ENDPOINTS_IN_USE_ANNOTATION).map(String::as_str);
        let recorded = || self.etcd.status.as_ref().map(|status| status.endpoints_in_use.as_str());
        annotated.or_else(recorded).filter(|urls| !urls.is_empty())
    }

    /// The highest number that was ever used in the name of a Machine, as far as it is recorded: by the annotation, or
    /// by the status if that has a higher number. If a person replaces the whole object, the annotation is lost.
    #[must_use]
    pub fn last_name_number(&self) -> Option<u64> {
        let annotated = self.etcd.annotations().get(names::LAST_NAME_NUMBER_ANNOTATION);
        let annotated = annotated.and_then(|number| number.parse().ok());
        let recorded = self.etcd.status.as_ref().and_then(|status| u64::try_from(status.last_name_number?).ok());
        annotated.max(recorded)
    }

    /// The recorded cluster ID, or that of the member list if none is recorded.
    pub(crate) fn cluster_id(&self) -> Option<String> {
        self.recorded_cluster_id().map(str::to_owned).or_else(|| match &self.membership {
            Membership::Known { cluster_id, .. } => Some(hex(*cluster_id)),
            Membership::NotAsked | Membership::Unknown(_) => None,
        })
    }

    /// What the status says of a member.
    #[must_use]
    pub fn recorded(&self, id: u64) -> Option<&MemberStatus> {
        let id = hex(id);
        self.etcd.status.as_ref()?.members.iter().find(|member| member.id == id)
    }

    /// Address of a Machine by the EtcdCluster's order of preference.
    #[must_use]
    pub fn address<'a>(&self, machine: &'a MachineView) -> Option<&'a str> {
        address(machine, &self.etcd.spec.address_types)
    }

    /// Where the member of a Machine serves clients: where it has just answered; otherwise at the Machine's address;
    /// otherwise, if the Machine has no address, where the member served last. Some infrastructure removes the
    /// addresses of a machine while the machine is off.
    #[must_use]
    pub fn client_url(&self, machine: &MachineView) -> Option<String> {
        let probe = self.probes.get(&machine.name);
        let answers = probe.filter(|probe| probe.report().is_some_and(|report| report.identity.is_ok()));
        let answered = answers.map(|probe| probe.url.clone());
        let present = || self.address(machine).map(names::client_url);
        let last = || self.last_on(machine).map(|member| member.client_url.clone()).filter(|url| !url.is_empty());
        answered.or_else(present).or_else(last)
    }

    /// Every URL at which API servers may have been told that the member of a Machine serves clients: what etcd lists
    /// for it, where it served last, and each address of the Machine. `addressTypes`, which says which address is used,
    /// may have changed since then, and some infrastructure removes addresses of a machine that it does not reach.
    #[must_use]
    pub fn may_serve_at(&self, machine: &MachineView, member: Option<&Member>) -> BTreeSet<String> {
        let last = self.last_on(machine).map(|member| member.client_url.clone()).filter(|url| !url.is_empty());
        let listed = member.into_iter().flat_map(|member| member.client_urls.iter().cloned());
        self.present_urls(machine).chain(last).chain(listed).collect()
    }

    /// Those URLs at which the member of a Machine does serve, as far as is known: where it has answered, and that of
    /// the Machine's addresses which etcd lists for it, as it was told to listen there.
    #[must_use]
    pub fn serves_at(&self, machine: &MachineView, member: &Member) -> BTreeSet<String> {
        let present = self.client_url(machine);
        let serves = |url: &String| present.as_ref() == Some(url) || member.client_urls.contains(url);
        self.present_urls(machine).filter(serves).collect()
    }

    fn present_urls(&self, machine: &MachineView) -> impl Iterator<Item = String> {
        let addresses = machine.addresses.iter().map(|(_, address)| names::client_url(address));
        self.client_url(machine).into_iter().chain(addresses)
    }

    /// The member that the status names for a Machine.
    #[must_use]
    pub fn last_on(&self, machine: &MachineView) -> Option<&MemberStatus> {
        self.etcd.status.as_ref()?.members.iter().find(|member| member.machine == machine.name)
    }

    /// How often members are probed.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.etcd.spec.health_check.interval()
    }

    /// How many learners the cluster takes at a time: the lowest of the recorded limit and the limits that its Machines
    /// were made with, in case a person has changed the record. 1 if no limit is recorded, which is etcd's own default.
    #[must_use]
    pub fn max_learners(&self) -> usize {
        let made_with = self.machines.values().filter_map(|machine| self.learner_limit(machine));
        let limits = made_with.chain([self.recorded_learner_limit()]);
        limits.map(|limit| limit.parse().unwrap_or(1)).min().unwrap_or(1)
    }

    /// The recorded learner limit, which new Machines are made with. If none is recorded, etcd's own default.
    #[must_use]
    pub fn recorded_learner_limit(&self) -> &str {
        self.etcd.annotations().get(names::MAX_LEARNERS_ANNOTATION).map_or("1", String::as_str)
    }

    /// The learner limit that a Machine was made with. If its config does not have one, or is gone, etcd's own default.
    /// `None`: no watch shows the config yet, and the Machine has no bootstrap data, so it is not a member either.
    #[must_use]
    pub fn learner_limit(&self, machine: &MachineView) -> Option<&str> {
        let default = || (self.configs.contains_key(&machine.name) || self.has_data(machine)).then_some("1");
        self.learner_limits.get(&machine.name).map(String::as_str).or_else(default)
    }

    /// Whether a Machine may become a member, or is one: it has bootstrap data, or was admitted and may have bootstrap
    /// data by now.
    #[must_use]
    pub fn is_admitted(&self, machine: &MachineView) -> bool {
        self.has_data(machine) || self.admitted_since(machine).is_some()
    }

    /// Whether a Machine has bootstrap data. With it, the machine joins by itself.
    #[must_use]
    pub fn has_data(&self, machine: &MachineView) -> bool {
        machine.data_secret.is_some() || self.bootstrapped.contains_key(&machine.name)
    }

    /// Since when the init Secret lets a Machine join.
    #[must_use]
    pub fn admitted_since(&self, machine: &MachineView) -> Option<Timestamp> {
        self.admitted.as_ref()?.get(&machine.uid).copied()
    }

    /// Since when a Machine has bootstrap data, by the API server's clock.
    #[must_use]
    pub fn bootstrapped_since(&self, machine: &MachineView) -> Option<Timestamp> {
        self.bootstrapped.get(&machine.name).copied()
    }

    /// Since when a Machine could boot: since it got its bootstrap data, after it was admitted. If neither is known,
    /// since it was created. The later one of the first two counts, because the API server's clock may be behind: the
    /// manager's own clock says when the Machine was admitted. A time that is more than a grace ahead is from a clock
    /// that was wrong, and counts only if all of them are.
    #[must_use]
    pub fn could_boot_since(&self, machine: &MachineView) -> Option<Timestamp> {
        let told = [self.bootstrapped_since(machine), self.admitted_since(machine)].into_iter().flatten();
        let created = machine.created.as_ref().map(|created| created.0);
        let is_past = |time: &Timestamp| !self.is_ahead(*time);
        told.clone().filter(is_past).max().or_else(|| created.filter(is_past)).or_else(|| told.chain(created).next())
    }

    /// Whether a time is more than a start-up grace ahead. Then it is from before a clock was set back.
    #[must_use]
    pub fn is_ahead(&self, time: Timestamp) -> bool {
        let grace = i64::from(self.etcd.spec.health_check.startup_grace_seconds);
        time.as_second() > self.now.as_second().saturating_add(grace)
    }

    /// Seconds of the start-up grace that a Machine has left; negative if it has ended.
    fn grace_left(&self, machine: &MachineView) -> i64 {
        let age = self.could_boot_since(machine).map_or(0, |since| self.now.as_second() - since.as_second());
        i64::from(self.etcd.spec.health_check.startup_grace_seconds) - age
    }

    /// Whether a Machine is within its start-up grace: `spec.healthCheck.startupGraceSeconds` from the time since when
    /// it could boot.
    #[must_use]
    pub fn is_in_grace(&self, machine: &MachineView) -> bool {
        self.grace_left(machine) > 0
    }

    /// When the start-up grace of a Machine ends, or has ended.
    #[must_use]
    pub fn end_of_grace(&self, machine: &MachineView) -> Option<Timestamp> {
        Timestamp::from_second(self.now.as_second().saturating_add(self.grace_left(machine))).ok()
    }
}

/// Whether somebody else than this controller has deleted a Machine that still waits for our hook. What this controller
/// deletes has an annotation.
#[must_use]
pub fn is_deleted_by_others(machine: &MachineView) -> bool {
    machine.deleting && !machine.annotations.contains_key(names::DELETED_FOR_ANNOTATION)
}

/// The address of a Machine: the first address of the first type, in the order of preference, that the Machine has.
#[must_use]
pub fn address<'a>(machine: &'a MachineView, preference: &[api::meta::AddressType]) -> Option<&'a str> {
    preference
        .iter()
        .find_map(|wanted| machine.addresses.iter().find(|(type_, _)| type_ == wanted.as_str()))
        .map(|(_, address)| address.as_str())
}

/// An ID as etcdctl prints it.
#[must_use]
pub fn hex(id: u64) -> String {
    format!("{id:x}")
}
