//! Every roster of up to four seats that are not well, beside healthy ones, up to eleven in all, which is the peak of a
//! surge at seven. The rules for etcd (`docs/rules.md`), written again in terms of the seats, judge everything that the
//! plan does there. If a step only records what comes, they judge the next step too.
//!
//! The model visits what can be reached from a few starts. Here it does not matter how a roster came about.

mod kind;

use crate::fixture::{CLUSTER_ID, Story, address, id, name};
use crate::observation::probe::{MemberFault, OurFault, Run};
use crate::observation::{Membership, Outcome, Probe, Report, hex};
use crate::plan::{Plan, Step, WhyDeleted};
use crate::roster::number;
use api::etcd_cluster::{EtcdClusterStatus, Health as Recorded, MemberRole, MemberStatus, Operation, OperationKind};
use api::names;
use k8s_openapi::jiff::Timestamp;
use kind::{Health, Kind, LEAVING, Machine, Role, WELL, kinds};
use std::collections::BTreeMap;

/// The most seats that are not well.
const MOST: usize = 4;
/// How many steps are followed: a replacement is begun, its Machine is created, and the Machine is admitted.
const FOLLOWED: usize = 3;
/// For how many seconds everything has been as it is: longer than every grace.
const AGE: i64 = 5_000;
/// For how many seconds a healthy learner has answered: less than it may take.
const LEARNS: i64 = 60;
/// The highest number that a name has had.
const LAST: u64 = 20;
/// The learner limit that the EtcdClusters of the fixture have recorded.
const MAX_LEARNERS: usize = 3;

/// How many more failures voters survive.
fn tolerance(voters: usize, well: usize) -> i64 {
    i64::try_from(well).unwrap() - i64::try_from(voters / 2 + 1).unwrap()
}

/// The seat of a Machine's name or UID.
fn seat_of(text: &str) -> usize {
    usize::try_from(number(text).unwrap()).unwrap()
}

fn seat_of_id(member: u64) -> usize {
    usize::try_from(member - id(0)).unwrap()
}

fn seat_of_hex(member: &str) -> usize {
    seat_of_id(u64::from_str_radix(member, 16).unwrap())
}

/// What was done, and how often.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, u32>);

impl Tally {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

/// A roster, and what has been begun there.
#[derive(Clone)]
struct Setting {
    story: Story,
    /// The kind of each seat, by the number in its name.
    kinds: Vec<Kind>,
    leader: usize,
    /// The seat whose replacement was begun.
    replacing: Option<usize>,
    /// Machines that were made since, and are held back.
    made: usize,
}

impl Setting {
    fn new(replicas: i32, healthy: usize) -> Self {
        let mut story = Story::with_voters(replicas, healthy);
        story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, &LAST.to_string());
        story.observation.init_cluster_id = Some(hex(CLUSTER_ID));
        // A Machine of which nothing is known matches the spec: to compare the Machines would take longer than all the
        // rest. An EtcdCluster without conditions was never paused.
        story.observation.configs.clear();
        story.etcd().status.get_or_insert_default().conditions.clear();
        story.pass(AGE);
        Self { story, kinds: vec![WELL; healthy], leader: 0, replacing: None, made: 0 }
    }

    /// The same with one seat more.
    fn with(&self, kind: Kind) -> Self {
        let mut next = self.clone();
        let index = next.kinds.len();
        if kind == LEAVING && !next.kinds.contains(&LEAVING) {
            next.leader = index;
            next.story.led_by(id(index));
        }
        next.kinds.push(kind);
        let (is_gone, unstarted) = (kind.machine == Machine::Gone, kind.role == Role::Unstarted);
        if !is_gone {
            next.makes_machine(index, kind);
        }
        if is_gone || !unstarted {
            next.makes_member(index, kind);
        }
        let probe = next.probe(index, kind);
        if is_gone {
            next.story.observation.strangers.insert(id(index), probe);
        } else {
            next.story.observation.probes.insert(name(index), probe);
        }
        let serves = |(_, kind): &(usize, &Kind)| kind.votes() && kind.machine != Machine::Gone;
        let voters = next.kinds.iter().enumerate().filter(serves);
        let mut urls: Vec<String> = voters.map(|(index, _)| names::client_url(&address(index))).collect();
        urls.sort();
        next.story.observation.init_urls = Some(urls.join(","));
        next
    }

    fn makes_machine(&mut self, index: usize, kind: Kind) {
        let story = &mut self.story;
        story.machine(index);
        story.observation.configs.remove(&name(index));
        let boots = kind.role == Role::Unstarted && kind.health == Health::Healthy;
        let age = if boots { 0 } else { AGE };
        let since = Timestamp::from_second(story.observation.now.as_second() - age).unwrap();
        story.observation.bootstrapped.insert(name(index), since);
        if kind.machine == Machine::Deleting {
            story.delete(index);
        }
    }

    fn makes_member(&mut self, index: usize, kind: Kind) {
        let (story, unstarted) = (&mut self.story, kind.role == Role::Unstarted);
        story.member(index, !kind.votes());
        if let Membership::Known { members, .. } = &mut story.observation.membership
            && let Some(member) = members.get_mut(&id(index)).filter(|_| unstarted)
        {
            member.name.clear();
            member.client_urls.clear();
        }
        let known = |text: String| if unstarted { String::new() } else { text };
        story.etcd().status.get_or_insert_default().members.push(MemberStatus {
            name: known(name(index)),
            id: hex(id(index)),
            machine: name(index),
            failure_domain: String::new(),
            peer_url: names::peer_url(&address(index)),
            client_url: known(names::client_url(&address(index))),
            role: if kind.votes() { MemberRole::Voter } else { MemberRole::Learner },
            leader: false,
            version: known("3.6.16".to_owned()),
            health: if unstarted { Recorded::Unknown } else { Recorded::Healthy },
            healthy_since: None,
            unhealthy_since: None,
            message: String::new(),
            database_size_bytes: None,
            certificate_expires: None,
        });
    }

    fn probe(&self, index: usize, kind: Kind) -> Probe {
        let (now, is_member) = (self.story.observation.now, self.story.observation.recorded(id(index)).is_some());
        let answer = || Report {
            leader: id(self.leader),
            learner: !kind.votes(),
            ..Report::of_one_that_is_well(CLUSTER_ID, id(index))
        };
        let outcome = match kind.health {
            _ if kind.role == Role::Unstarted => Outcome::MemberFault(MemberFault::Refused),
            Health::Healthy => Outcome::Answered(answer()),
            Health::Down => Outcome::MemberFault(MemberFault::Refused),
            Health::Unknown => Outcome::OurFault(OurFault::FileDescriptors),
        };
        let learns = kind.role == Role::Learner && kind.health == Health::Healthy;
        let since = Timestamp::from_second(now.as_second() - if learns { LEARNS } else { AGE }).unwrap();
        Probe {
            url: names::client_url(&address(index)),
            at: now,
            run: Run { kind: outcome.kind(), since, last: now },
            outcome,
            expected: is_member.then(|| id(index)),
            answered: None,
        }
    }

    fn status(&mut self) -> &mut EtcdClusterStatus {
        self.story.etcd().status.get_or_insert_default()
    }

    fn operation(&self) -> Option<&Operation> {
        self.story.observation.etcd.status.as_ref()?.operation.as_ref()
    }

    fn wanted(&self) -> usize {
        usize::try_from(self.story.observation.etcd.spec.replicas).unwrap()
    }

    fn count(&self, counts: impl Fn(Kind) -> bool) -> usize {
        self.kinds.iter().filter(|kind| counts(**kind)).count()
    }

    fn voters(&self) -> usize {
        self.count(Kind::votes)
    }

    fn well(&self) -> usize {
        self.count(Kind::is_well)
    }

    /// Machines that stay.
    fn kept(&self) -> usize {
        self.count(Kind::stays) + self.made - usize::from(self.replacing.is_some())
    }

    /// As many voters as a quorum has look bad at the same time.
    fn is_frozen(&self) -> bool {
        self.voters() - self.well() > self.voters() / 2
    }

    /// Visits every multiset of these kinds, and decides where the number of seats is one of `sizes`.
    fn visit(&self, kinds: &[Kind], more: usize, sizes: &[usize], tally: &mut Tally) {
        let seats = self.kinds.len();
        if sizes.contains(&seats) {
            self.decide(tally);
        }
        if more == 0 || !sizes.iter().any(|size| (seats + 1..=seats + more).contains(size)) {
            return;
        }
        for (at, kind) in kinds.iter().enumerate() {
            self.with(*kind).visit(&kinds[at..], more - 1, sizes, tally);
        }
    }

    fn plan(&self, tally: &mut Tally) -> Plan {
        tally.count("plans");
        self.story.plan()
    }

    fn decide(&self, tally: &mut Tally) {
        let plan = self.plan(tally);
        let is_as_wanted = self.kinds.len() == self.wanted() && self.kinds.iter().all(|kind| *kind == WELL);
        assert_eq!(plan == Plan::Steady, is_as_wanted, "{plan:?} of {}", self.describe());
        if self.is_frozen() {
            tally.count("frozen");
        }
        self.follow(plan, FOLLOWED, tally);
    }

    fn follow(&self, plan: Plan, left: usize, tally: &mut Tally) {
        let step = match plan {
            Plan::Do(step) => step,
            other => {
                assert!(self.operation().is_none(), "what was begun is not done: {other:?} of {}", self.describe());
                return;
            }
        };
        tally.count(self.judged(&step));
        if left > 0
            && let Some(next) = self.having_done(step)
        {
            let plan = next.plan(tally);
            next.follow(plan, left - 1, tally);
        }
    }

    /// The setting after a step that changes nothing of etcd yet. `None`: the step is not followed any further.
    fn having_done(&self, step: Step) -> Option<Self> {
        let mut next = self.clone();
        match step {
            Step::Begin(operation) => next.status().operation = Some(operation),
            Step::BeginRemediation(record) => {
                next.replacing = Some(seat_of(&record.machine));
                next.status().last_remediation = Some(record);
            }
            Step::CreateMachine { number, .. } if self.made == 0 => {
                let index = usize::try_from(number).unwrap();
                next.story.held_back(index);
                next.story.observation.configs.remove(&name(index));
                next.made = 1;
            }
            _ => return None,
        }
        Some(next)
    }

    fn describe(&self) -> String {
        let (replacing, made) = (self.replacing, self.made);
        format!("{:?}, {} wanted, {replacing:?} is replaced, {made} made", self.kinds, self.wanted())
    }

    fn rule(&self, holds: bool, step: &Step, says: &str) {
        assert!(holds, "{says}: {step:?} of {}", self.describe());
    }

    /// The name of a step in the tally. Fails if the rules do not allow the step.
    fn judged(&self, step: &Step) -> &'static str {
        let kinds = &self.kinds;
        if let Some(operation) = self.operation() {
            let id = match step {
                Step::RemoveMember(may) => may.member_id(),
                Step::MoveLeader { from, .. } => *from,
                _ => 0,
            };
            self.rule(hex(id) == operation.member_id, step, "one change at a time: what was begun comes first");
        }
        // A surplus Machine is deleted as soon as the health of every voter is known: our hook keeps it for rule 1.
        let adds = matches!(step, Step::CreateMachine { .. } | Step::Admit { .. });
        let waits = matches!(step, Step::DeleteMachine { why: WhyDeleted::Surplus, .. });
        self.rule(adds || waits || !self.is_frozen(), step, "rule 4: a quorum looks bad, and is left alone");
        match step {
            Step::Begin(operation) => {
                let at = seat_of_hex(&operation.member_id);
                self.may_be_removed(at, step);
                let others = self.well() - usize::from(kinds[at].is_well());
                let hands_over = at == self.leader && kinds[at].is_well() && others > 0;
                let moves = operation.kind == OperationKind::MoveLeader;
                self.rule(moves == hands_over, step, "rule 2: who leads hands over first, and nobody else does");
                "begun"
            }
            Step::RemoveMember(may) => {
                self.may_be_removed(seat_of_id(may.member_id()), step);
                "removals"
            }
            Step::MoveLeader { from, to } => {
                self.may_be_removed(seat_of_id(*from), step);
                let (to, stays) = (kinds[seat_of_id(*to)], |kind: Kind| kind.is_well() && kind.stays());
                let is_best = stays(to) || (to.is_well() && self.count(stays) == 0);
                self.rule(is_best, step, "rule 2: leadership moves to one that is well, and that stays");
                "moves"
            }
            Step::NoteRelease { machine_uid } => self.may_be_let_go(seat_of(machine_uid), step),
            Step::ReleaseHook { machine, .. } => self.may_be_let_go(seat_of(machine), step),
            Step::BeginRemediation(record) => {
                let (at, kind) = (seat_of(&record.machine), kinds[seat_of(&record.machine)]);
                let has_failed = kind.votes() && kind.has_failed() && kind.stays();
                self.rule(has_failed, step, "rule 4: only a voter is replaced that has failed for long enough");
                self.rule(self.keeps_tolerance(at), step, "rule 1: nobody is replaced who could not be removed");
                let goes = |kind: Kind| kind.votes() && kind.has_failed() && kind.machine == Machine::Deleting;
                let is_first = self.replacing.is_none() && self.count(goes) == 0;
                self.rule(is_first, step, "one change at a time: one that has failed goes before the next");
                "replacements"
            }
            Step::DeleteMachine { name, why } => self.may_be_deleted(seat_of(name), *why, step),
            Step::CreateMachine { number, .. } => {
                self.rule(*number == LAST + 1 + self.made as u64, step, "rule 3: no name is used twice");
                self.rule(self.kept() < self.wanted(), step, "no Machine is made that is not wanted");
                self.takes_more(step);
                "made"
            }
            Step::Admit { name: one, .. } => {
                self.rule(self.made == 1 && *one == name(seat_of(one)), step, "only who is held back is admitted");
                self.takes_more(step);
                let fits = self.count(Kind::comes) == 0 || self.takes_several();
                self.rule(fits, step, "rule 2: not more are admitted than may come side by side");
                "admissions"
            }
            other => panic!("nothing else is to be done: {other:?} of {}", self.describe()),
        }
    }

    /// Rule 1: afterwards etcd survives at least as many failures as now, or as many as a healthy cluster does. A voter
    /// that is not known to be well counts as down, except for the member itself: the quorum may depend on it.
    fn keeps_tolerance(&self, at: usize) -> bool {
        let (kind, voters, well) = (self.kinds[at], self.voters(), self.well());
        let now = tolerance(voters, well + usize::from(kind.is_doubtful()));
        let after = tolerance(voters - usize::from(kind.votes()), well - usize::from(kind.is_well()));
        after >= 0 && after >= now.min(tolerance(self.wanted(), self.wanted()))
    }

    fn may_be_removed(&self, at: usize, step: &Step) {
        let kind = self.kinds[at];
        self.rule(!kind.stays(), step, "nobody is removed whose Machine stays");
        let gives_nothing = self.voters().is_multiple_of(2);
        let is_left_over = kind.machine != Machine::Gone || !kind.votes() || kind.has_failed() || gives_nothing;
        self.rule(is_left_over, step, "rule 3: of an odd number, no voter is removed before it has failed");
        self.rule(self.keeps_tolerance(at), step, "rule 1: no removal lowers the tolerance");
    }

    /// Only a late Machine may be let go, and only if it does not take the quorum with it when it votes and goes.
    fn may_be_let_go(&self, at: usize, step: &Step) -> &'static str {
        let late = Kind { role: Role::Unstarted, health: Health::Down, machine: Machine::Deleting };
        self.rule(self.kinds[at] == late, step, "nobody is let go that is a member, or may become one in time");
        let survives = tolerance(self.voters() + 1, self.well()) >= 0;
        self.rule(survives, step, "rule 1: whoever is let go does not take the quorum with it");
        "let go"
    }

    fn may_be_deleted(&self, at: usize, why: WhyDeleted, step: &Step) -> &'static str {
        let kind = self.kinds[at];
        self.rule(kind.stays(), step, "nothing is deleted twice");
        match why {
            WhyDeleted::Unhealthy => {
                self.rule(self.replacing == Some(at), step, "rule 2: a replacement is written down first");
                self.rule(self.keeps_tolerance(at), step, "rule 1: nobody is deleted who could not be removed");
                let is_up = |kind: Kind| kind.stays() && !kind.votes() && !kind.has_failed();
                let stays = |kind: Kind| kind.stays() && kind.is_well();
                let is_time =
                    self.voters().is_multiple_of(2) || self.count(is_up) > 0 || self.count(stays) >= self.wanted();
                self.rule(is_time, step, "rule 2: of an odd number, the replacement boots first");
                "failed"
            }
            WhyDeleted::Surplus => {
                self.rule(self.kept() > self.wanted(), step, "no Machine is deleted that is wanted");
                self.rule(self.count(Kind::is_doubtful) == 0, step, "rule 4: it is known of every voter how it is");
                "surplus"
            }
            WhyDeleted::Stuck => {
                let is_stuck = !kind.votes() && kind.health == Health::Down;
                self.rule(is_stuck, step, "rule 2: only one is given up that has had its time, and does not vote");
                let is_learner = kind.role == Role::Learner;
                self.rule(is_learner || self.well() == self.voters(), step, "nobody is late while a voter is away");
                "stuck"
            }
            WhyDeleted::Outdated | WhyDeleted::Marked => panic!("{step:?} of {}", self.describe()),
        }
    }

    /// Rule 2: learners may catch up side by side, as many as `max-learners` says, while no voter is replaced. If all
    /// of them vote and fail, the voters that are well and stay have to be a quorum. Beside a single voter, two may
    /// come.
    fn takes_several(&self) -> bool {
        let come = self.count(Kind::comes) + 1;
        let stay = self.count(|kind| kind.is_well() && kind.stays());
        let outvote = stay <= (self.voters() + come) / 2;
        let is_odd = |kind: Kind| kind.votes() && (kind.has_failed() || kind.machine == Machine::Gone);
        let alone = self.replacing.is_some() || self.count(is_odd) > 0;
        come <= MAX_LEARNERS && !alone && (!outvote || (self.voters(), stay, come) == (1, 1, 2))
    }

    /// Rule 2: a member is added only beside voters that are well, or on their way out. It is never added beside a
    /// member that no Machine carries, except for a voter that has failed and makes way; nor while a Machine that is on
    /// its way out may still join.
    fn takes_more(&self, step: &Step) {
        let is_replaced = |kind: Kind| self.replacing.is_some() && kind.has_failed();
        let ails = |kind: Kind| kind.votes() && kind.stays() && !kind.is_well() && !is_replaced(kind);
        self.rule(self.count(ails) == 0 && self.well() > 0, step, "nobody is added beside a voter that ails");
        let is_stranger = |kind: Kind| kind.machine == Machine::Gone && !(kind.votes() && kind.has_failed());
        self.rule(self.count(is_stranger) == 0, step, "rule 3: nobody is added beside one without a Machine");
        let joins = |kind: Kind| kind.comes() && kind.role == Role::Unstarted && !kind.stays();
        self.rule(self.count(joins) == 0, step, "nobody is added while one that goes may still join");
    }
}

/// What the plan does with rosters of as many seats as wanted, fewer or more.
const ALL: [&str; 11] = [
    "frozen",
    "begun",
    "removals",
    "moves",
    "let go",
    "replacements",
    "failed",
    "surplus",
    "stuck",
    "made",
    "admissions",
];

/// Judges every roster of these numbers of seats, healthy ones included, for each wanted number of members. Everything
/// in `done` has to occur.
fn judges(wanted: &[(i32, &[usize])], done: &[&str]) {
    let mut tally = Tally::default();
    for (replicas, sizes) in wanted {
        for healthy in 0..=sizes.iter().copied().max().unwrap_or(0) {
            Setting::new(*replicas, healthy).visit(&kinds(), MOST, sizes, &mut tally);
        }
    }
    println!("{wanted:?}: {:?}", tally.0);
    for what in done {
        assert!(tally.0.contains_key(*what), "of {what} there is no case");
    }
}

// The sizes: as many seats as wanted, one more, as many as at the peak of a surge, and as many as there are if fewer or
// more were wanted before.

#[test]
fn of_one_and_three() {
    judges(&[(1, &[1, 2, 3]), (3, &[1, 3, 4, 5, 6])], &ALL);
}

#[test]
fn of_five() {
    judges(&[(5, &[5, 6, 8])], &ALL);
}

#[test]
fn of_seven() {
    judges(&[(7, &[7, 8])], &ALL);
}

/// No Machine joins there, and no quorum can look bad.
#[test]
fn of_seven_at_the_peak_of_a_surge() {
    judges(&[(7, &[11])], &["begun", "removals", "moves", "let go", "surplus"]);
}
