//! What holds while a cluster grows, whatever happens in whatever order.

use super::{Plan, Step};
use crate::fixture::{Story, address, name};
use crate::observation::{Membership, probe::ListFault};
use crate::plan::View;
use api::etcd_cluster::{EtcdClusterStatus, RemediationMode, RolloutType};
use api::names;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Happening {
    Address(usize),
    Join(usize),
    Promote(usize),
    Fail(usize),
    Heal(usize),
    ListLost,
    ListBack,
    Pass(i64),
    /// A Machine comes all the way up, as it does in nearly all cases.
    Up(usize),
    /// The user deletes a Machine.
    Delete(usize),
    /// A Machine that was deleted is gone. Its member stays in etcd's list: nobody removes it.
    Gone(usize),
    /// The manager restarts, and has probed no member yet.
    Restart,
    InitSecretLost,
    SpecChanged,
}

/// What happens by itself.
fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..7_usize).prop_map(Happening::Address),
        (0..7_usize).prop_map(Happening::Join),
        (0..7_usize).prop_map(Happening::Promote),
        (0..7_usize).prop_map(Happening::Fail),
        (0..7_usize).prop_map(Happening::Heal),
        Just(Happening::ListLost),
        Just(Happening::ListBack),
        (1..700_i64).prop_map(Happening::Pass),
        Just(Happening::Restart),
    ]
}

/// The same, and what users and other writers do.
fn interference() -> impl Strategy<Value = Happening> {
    prop_oneof![
        8 => happening(),
        8 => (0..7_usize).prop_map(Happening::Up),
        1 => (0..7_usize).prop_map(Happening::Delete),
        2 => (0..7_usize).prop_map(Happening::Gone),
        1 => Just(Happening::InitSecretLost),
        1 => Just(Happening::SpecChanged),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    prop::collection::vec(happening(), 1..120)
}

/// A story, and the member list while we cannot read it.
struct World {
    story: Story,
    hidden: Option<Membership>,
    /// Machines that have been made: no two have the same UID.
    made: usize,
    /// Numbers in the names of Machines.
    used: BTreeSet<u64>,
    /// The learner limit that the first Machine is made with.
    limit: &'static str,
}

impl World {
    fn new(mut story: Story) -> Self {
        // Growth alone: replacing is another story.
        story.etcd().spec.remediation.mode = RemediationMode::Report;
        story.etcd().spec.rollout_strategy.type_ = RolloutType::OnDelete;
        Self { story, hidden: None, made: 0, used: BTreeSet::new(), limit: "3" }
    }

    fn is_admitted(&self, index: usize) -> bool {
        self.story
            .observation
            .machines
            .get(&name(index))
            .is_some_and(|machine| self.story.observation.is_admitted(machine))
    }

    fn is_member(&self, index: usize) -> bool {
        let view = View::new(&self.story.observation);
        view.roster.is_listed() && view.roster.by_machine(&name(index)).is_some_and(|seat| seat.member.is_some())
    }

    fn knows_members(&self) -> bool {
        self.story.observation.members().is_some_and(|members| !members.is_empty())
    }

    /// Lets it happen, if it can.
    fn happen(&mut self, happening: &Happening) {
        let first = self.story.observation.members().is_none_or(|members| members.is_empty());
        match *happening {
            Happening::Address(index) if self.is_admitted(index) => self.story.address(index),
            Happening::Join(index) if self.is_admitted(index) && !self.is_member(index) && self.hidden.is_none() => {
                // Without bootstrap data it cannot join.
                if !self.story.observation.bootstrapped.contains_key(&name(index)) {
                    self.story.bootstrap(index);
                }
                self.story.address(index);
                self.story.member(index, !first);
            }
            Happening::Promote(index) if self.is_member(index) => {
                // Whether its check succeeds at that moment is another matter.
                self.story.member(index, false);
            }
            Happening::Fail(index) if self.is_admitted(index) => self.story.failing(index, "down"),
            Happening::Heal(index) if self.is_member(index) => self.story.healthy(index),
            Happening::ListLost if self.hidden.is_none() => {
                let lost = Membership::Unknown(ListFault::NoQuorum(None));
                self.hidden = Some(std::mem::replace(&mut self.story.observation.membership, lost));
            }
            Happening::ListBack => {
                if let Some(list) = self.hidden.take() {
                    self.story.observation.membership = list;
                }
            }
            Happening::Pass(seconds) => self.story.pass(seconds),
            Happening::Up(index) => {
                for step in [Happening::Join(index), Happening::Promote(index), Happening::Heal(index)] {
                    self.happen(&step);
                }
            }
            Happening::Delete(index) => {
                self.story.observation.machines.entry(name(index)).and_modify(|machine| machine.deleting = true);
            }
            Happening::Gone(index) => self.gone(&name(index)),
            Happening::Restart => self.story.observation.probes.clear(),
            Happening::InitSecretLost => {
                self.story.observation.init_urls = None;
                self.story.observation.init_version = None;
                self.story.observation.admitted = None;
            }
            Happening::SpecChanged => {
                let version = format!("3.6.{}", self.story.observation.now.as_second() % 17);
                self.story.annotate(names::PINNED_VERSION_ANNOTATION, &version);
                self.story.etcd().spec.etcdadm_config_spec.version = Some(version);
            }
            _ => {}
        }
    }

    fn gone(&mut self, name: &str) {
        let observation = &mut self.story.observation;
        if observation.machines.get(name).is_some_and(|machine| machine.deleting) {
            observation.machines.remove(name);
            observation.bootstrapped.remove(name);
            observation.probes.remove(name);
        }
    }

    /// Makes a Machine, with a UID that none of this name has had.
    fn make(&mut self, index: usize) {
        self.story.held_back(index);
        self.made += 1;
        let uid = format!("uid-{index}-{}", self.made);
        self.story.observation.machines.get_mut(&name(index)).unwrap().uid = uid;
    }

    /// The UIDs of the Machines that may join, by the init Secret.
    fn admissions(&self) -> Vec<String> {
        let live: Vec<_> = self.story.observation.live_machines().map(|machine| &machine.uid).collect();
        self.story
            .observation
            .admitted
            .iter()
            .flatten()
            .map(|(uid, _)| uid)
            .filter(|uid| live.contains(uid))
            .cloned()
            .collect()
    }

    /// Checks that the planned step is safe, does it, and returns the status that is written.
    fn reconcile(&mut self) -> Result<EtcdClusterStatus, TestCaseError> {
        let wanted = usize::try_from(self.story.observation.etcd.spec.replicas).unwrap();
        let decision = crate::plan::plan(&self.story.observation);
        let after = crate::status::status(&self.story.observation, &decision, None);
        let before = self.story.observation.etcd.status.as_ref();
        let can_wait = crate::status::can_wait(before, &after, &decision.next);
        match decision.next {
            Plan::Do(Step::CreateMachine { number: next, .. }) => {
                let new = name(usize::try_from(next).unwrap());
                prop_assert!(!self.story.observation.machines.contains_key(&new));
                prop_assert!(self.used.insert(next), "the number {next} is used again");
                prop_assert!(self.story.observation.live_machines().count() < wanted);
                self.story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, &next.to_string());
                let begun = self.story.observation.etcd.status.as_ref().is_some_and(|status| status.initialized);
                prop_assert!(!begun || self.knows_members(), "a second, empty etcd");
                let first = self.story.observation.machines.is_empty();
                self.make(number(&new));
                if first {
                    // No other Machine is made before this one has its data: the bootstrap provider has no other
                    // choice.
                    self.story.bootstrap(number(&new));
                    self.story.takes_learners(self.limit);
                }
            }
            Plan::Do(Step::Admit { name: new, admitted, .. }) => {
                prop_assert!(!self.is_admitted(number(&new)));
                self.may_be_admitted()?;
                self.story.admit(number(&new));
                prop_assert!(self.admissions().iter().all(|uid| admitted.contains(uid)), "revoked: {admitted}");
            }
            Plan::Do(Step::PublishInit { admitted, .. }) => {
                prop_assert!(self.admissions().iter().all(|uid| admitted.contains(uid)), "revoked: {admitted}");
                self.story.publish();
            }
            Plan::Do(Step::DeleteHeldBack { name: old, .. }) => {
                prop_assert!(!self.is_admitted(number(&old)) && !self.is_member(number(&old)), "{old} may have booted");
                self.happen(&Happening::Delete(number(&old)));
            }
            Plan::Do(Step::Record { annotations, .. }) => {
                for (key, value) in annotations {
                    self.story.annotate(key, &value.unwrap_or_default());
                }
            }
            // These steps change nothing but the status.
            Plan::Do(Step::Begin(_) | Step::Finish(_) | Step::NoteRelease { .. }) => {}
            Plan::Do(Step::MoveLeader { .. }) => {}
            Plan::Do(Step::RemoveMember(permission)) => {
                let begun = self.story.observation.etcd.status.as_ref().and_then(|status| status.operation.clone());
                prop_assert!(begun.is_some(), "nothing is removed before it is written down");
                if let Membership::Known { members, .. } = &mut self.story.observation.membership {
                    members.remove(&permission.member_id());
                }
            }
            Plan::Do(Step::ReleaseHook { machine, .. }) => {
                prop_assert!(!self.is_member(number(&machine)), "{machine} is released with its member");
                self.gone(&machine);
            }
            Plan::Do(step) => prop_assert!(false, "unexpected {step:?}"),
            Plan::Steady | Plan::Wait(_) | Plan::Block(_) => {}
        }
        prop_assert!(!after.ready || after.ready_replicas >= self.story.observation.etcd.spec.replicas);
        if !can_wait {
            self.story.etcd().status = Some(after.clone());
        }
        Ok(after)
    }

    fn may_be_admitted(&self) -> Result<(), TestCaseError> {
        let observation = &self.story.observation;
        let grace = i64::from(observation.etcd.spec.health_check.startup_grace_seconds);
        let view = View::new(observation);
        let mut coming = 0;
        for seat in view.roster.seats.iter().filter(|seat| seat.admitted) {
            let late = seat.machine.is_some_and(|machine| {
                let since = observation.could_boot_since(machine).unwrap_or(observation.now);
                observation.now.as_second() - since.as_second() >= grace
            });
            match &seat.member {
                Some(_) if seat.is_voter() => prop_assert!(seat.is_healthy() || seat.is_leaving()),
                Some(_) => {
                    prop_assert!(!late, "nothing beside a learner that does not catch up");
                    coming += 1;
                }
                None => coming += usize::from(!late),
            }
        }
        prop_assert!(coming < observation.max_learners(), "no more on their way than learners may catch up");
        prop_assert!(self.knows_members(), "nothing beside an unknown membership");
        let mut members = observation.members().into_iter().flatten();
        let ours = members.all(|(id, member)| observation.machine_of(*id, member).is_some());
        prop_assert!(ours, "nothing beside a member whose Machine is gone");
        Ok(())
    }
}

fn number(name: &str) -> usize {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

proptest! {
    /// There are never more Machines than wanted, and never more on their way than learners may catch up. No member is
    /// added while a voter is down, a learner is late, the Machine of a member is gone, or the member list is unknown.
    /// No admission is revoked, and no Machine is deleted that may have booted.
    #[test]
    fn growth_is_always_safe(
        replicas in prop::sample::select(vec![1, 3, 5, 7]),
        limit in prop::sample::select(vec!["1", "2", "3"]),
        happenings in prop::collection::vec(interference(), 1..120),
    ) {
        let mut world = World { limit, ..World::new(Story::new(replicas)) };
        for happening in happenings {
            world.happen(&happening);
            world.reconcile()?;
        }
    }

    /// A reader that takes the endpoints only while the status says Ready, like the Cluster hook, sees them change
    /// once: from the earlier ones to those of all members. In between no earlier endpoint goes, and no learner's
    /// endpoint ever shows up.
    #[test]
    fn a_scale_changes_the_endpoints_of_the_control_plane_once(
        (before, after) in prop::sample::select(vec![(1, 3), (3, 5), (1, 7)]), happenings in happenings(),
    ) {
        let endpoints = |count: usize| (0..count).map(|index| names::client_url(&address(index))).collect::<Vec<_>>();
        let mut world = World::new(Story::with_voters(before, usize::try_from(before).unwrap()));
        world.story.etcd().spec.replicas = after;
        let (old, new) = (endpoints(usize::try_from(before).unwrap()), endpoints(usize::try_from(after).unwrap()));
        let finish = (0..8).flat_map(|index| {
            let (heals, fails) = (Happening::Heal(index), Happening::Fail(index));
            let joins = [Happening::ListBack, Happening::Join(index), heals, fails, Happening::Promote(index)];
            let all_well = (0..7).map(Happening::Heal);
            joins.into_iter().chain(all_well).chain([Happening::Pass(601), Happening::Pass(1), Happening::Pass(1)])
        });
        let mut ready = false;
        for happening in happenings.into_iter().chain(finish) {
            world.happen(&happening);
            let status = world.reconcile()?;
            let published: Vec<String> = status.endpoints.split(',').map(str::to_owned).collect();
            prop_assert!(old.iter().all(|url| published.contains(url)), "{published:?}");
            if let Some(members) = world.story.observation.members() {
                let learners = members.values().filter(|member| member.learner);
                for url in learners.flat_map(|learner| &learner.client_urls) {
                    prop_assert!(!published.contains(url), "{url} is a learner's");
                }
            }
            if status.ready {
                prop_assert_eq!(&published, &new);
                ready = true;
            }
        }
        prop_assert!(ready, "the cluster never got there: {:?}", world.story.plan());
    }
}
