//! Rule 1 for every cluster of up to eleven members, which is the peak of a surge at seven. Permission depends on how
//! many members there are of each kind, and not on which members they are. So clusters are counted by kinds, and all of
//! them fit into a unit test. For a member whose health is not known, every possibility is tried in turn.

use super::{may_remove, survives};
use crate::fixture::{CLUSTER_ID, Story};
use crate::observation::probe::{OurFault, Run, RunKind};
use crate::observation::{Member, Outcome, Probe, Report};
use crate::roster::{Roster, Seat, Verdict};
use api::etcd_cluster::EtcdClusterSpec;
use k8s_openapi::jiff::Timestamp;

/// The most members that there are at a time.
const MOST: usize = 11;
/// The most released machines without a member, which may join in their last moments.
const MOST_LATE: usize = 2;

/// A member, as far as permission depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A voter that has just answered.
    Well,
    /// The same on a released Machine.
    Released,
    Unhealthy,
    /// Voters whose health is not known, in the three ways that there are.
    Failing,
    Unchecked,
    NotAsked,
    Learner,
}

impl Kind {
    fn is_well(self) -> bool {
        matches!(self, Self::Well | Self::Released)
    }

    fn is_doubtful(self) -> bool {
        matches!(self, Self::Failing | Self::Unchecked | Self::NotAsked)
    }
}

/// The answers that the seats refer to.
struct Answers {
    voter: Probe,
    learner: Probe,
    not_asked: Probe,
}

impl Answers {
    fn new() -> Self {
        let answered = |learner| Outcome::Answered(Report { learner, ..Report::of_one_that_is_well(CLUSTER_ID, 0) });
        let probe = |outcome| Probe {
            url: String::new(),
            at: Timestamp::UNIX_EPOCH,
            outcome,
            run: Run::new(RunKind::Healthy, Timestamp::UNIX_EPOCH),
            expected: None,
            answered: None,
        };
        Self {
            voter: probe(answered(false)),
            learner: probe(answered(true)),
            not_asked: probe(Outcome::OurFault(OurFault::FileDescriptors)),
        }
    }

    fn seat(&self, id: u64, kind: Kind) -> Seat<'_> {
        let (since, why) = (Timestamp::UNIX_EPOCH, String::new());
        let (verdict, probe) = match kind {
            Kind::Well | Kind::Released => (Verdict::Healthy { since }, Some(&self.voter)),
            Kind::Learner => (Verdict::Healthy { since }, Some(&self.learner)),
            Kind::NotAsked => (Verdict::Healthy { since }, Some(&self.not_asked)),
            Kind::Unhealthy => (Verdict::Unhealthy { since, why }, None),
            Kind::Failing => (Verdict::Failing { since, why }, None),
            Kind::Unchecked => (Verdict::Unknown { why }, None),
        };
        let learner = kind == Kind::Learner;
        let member = Member { name: String::new(), peer_urls: Vec::new(), client_urls: Vec::new(), learner };
        let released = kind == Kind::Released;
        Seat { member: Some((id, member)), verdict, probe, may_vote: learner, released, ..of_nobody() }
    }
}

/// A released machine that may join in its last moments.
fn late<'a>() -> Seat<'a> {
    Seat { may_vote: true, released: true, ..of_nobody() }
}

fn of_nobody<'a>() -> Seat<'a> {
    Seat {
        machine: None,
        member: None,
        probe: None,
        verdict: Verdict::Unknown { why: String::new() },
        counts: false,
        admitted: true,
        joining: false,
        orphaned: false,
        stray: false,
        may_vote: false,
        released: false,
    }
}

/// Every way to have up to `most` things of this many kinds, by how many there are of each kind.
fn counts(kinds: usize, most: usize) -> Vec<Vec<usize>> {
    if kinds == 0 {
        return vec![Vec::new()];
    }
    let beginning_with = |first: usize| {
        let others = counts(kinds - 1, most - first);
        others.into_iter().map(move |others| [vec![first], others].concat())
    };
    (0..=most).flat_map(beginning_with).collect()
}

/// Every cluster. At most one of its voters is on a released Machine: such a voter counts like a voter that is well,
/// and like a machine that is late.
fn clusters() -> impl Iterator<Item = Vec<Kind>> {
    let doubtful = [Kind::Failing, Kind::Unchecked, Kind::NotAsked];
    counts(5, MOST).into_iter().filter(|count| count[4] <= 1).map(move |count| {
        let mut cluster = Vec::new();
        cluster.extend(std::iter::repeat_n(Kind::Well, count[0]));
        cluster.extend(std::iter::repeat_n(Kind::Unhealthy, count[1]));
        cluster.extend(doubtful.into_iter().cycle().take(count[2]));
        cluster.extend(std::iter::repeat_n(Kind::Learner, count[3]));
        cluster.extend(std::iter::repeat_n(Kind::Released, count[4]));
        cluster
    })
}

/// A member that is to go, and how many voters there are beside it.
struct Removal {
    target: Kind,
    voters: usize,
    well: usize,
    /// Of those that are well.
    released: usize,
    doubtful: usize,
}

impl Removal {
    fn of(cluster: &[Kind], at: usize) -> Self {
        let count = |counts: fn(Kind) -> bool| {
            cluster.iter().enumerate().filter(|(other, kind)| *other != at && counts(**kind)).count()
        };
        Self {
            target: cluster[at],
            voters: count(|kind| kind != Kind::Learner),
            well: count(Kind::is_well),
            released: count(|kind| kind == Kind::Released),
            doubtful: count(Kind::is_doubtful),
        }
    }

    /// Whether rule 1 lets the member go: in every case that is possible by what is known, and however many released
    /// machines vote in their last moments.
    fn is_safe(&self, late: usize, spec: &EtcdClusterSpec) -> bool {
        let wanted = usize::try_from(spec.replicas).unwrap();
        let votes = usize::from(self.target != Kind::Learner);
        // Whether the member itself is up, as 0 or 1: at least, and at most.
        let (least, most) = match self.target {
            kind if kind.is_well() => (1, 1),
            kind if kind.is_doubtful() => (0, 1),
            _ => (0, 0),
        };
        let goes_first = spec.removes_first() && self.well == self.voters && self.voters + 1 >= wanted;
        let somebody_stays = votes == 0 || self.target == Kind::Unhealthy || self.well > self.released;
        let keeps_tolerance = |itself: usize, others: usize| {
            let before = survives(self.voters + votes, self.well + others + itself);
            let after = survives(self.voters, self.well + others);
            after >= 0 && (goes_first || after >= before.min(survives(wanted, wanted)))
        };
        let keeps_the_quorum = |itself: usize, others: usize, come: usize| {
            let stay = self.well - self.released + others;
            let stays = if self.target == Kind::Released { 0 } else { itself };
            let before = survives(self.voters + votes + come, stay + stays);
            survives(self.voters + come, stay) >= before.min(0)
        };
        let is_kept = |itself: usize| {
            (0..=self.doubtful).all(|others| {
                keeps_tolerance(itself, others) && (0..=late).all(|come| keeps_the_quorum(itself, others, come))
            })
        };
        somebody_stays && (least..=most).all(is_kept)
    }
}

/// Every spec that makes a difference.
fn specs() -> Vec<EtcdClusterSpec> {
    let spec = |replicas: i32, removes_first: bool| {
        let mut story = Story::new(replicas);
        if removes_first {
            story.surges(0);
        }
        story.observation.etcd.spec.clone()
    };
    let all = [(1, false), (3, false), (5, false), (7, false), (3, true), (5, true), (7, true)];
    all.map(|(replicas, removes_first)| spec(replicas, removes_first)).into()
}

#[test]
fn permission_is_given_exactly_where_rule_1_lets_a_member_go() {
    let (answers, specs) = (Answers::new(), specs());
    let (mut questions, mut permissions) = (0_u32, 0_u32);
    for cluster in clusters() {
        let first_of_its_kind = |at: &usize| !cluster[..*at].contains(&cluster[*at]);
        let targets: Vec<usize> = (0..cluster.len()).filter(first_of_its_kind).collect();
        for others in 0..=MOST_LATE {
            let members = (0_u64..).zip(&cluster).map(|(id, kind)| answers.seat(id, *kind));
            let roster = Roster::listed(members.chain(std::iter::repeat_with(late).take(others)).collect());
            for at in &targets {
                let removal = Removal::of(&cluster, *at);
                for spec in &specs {
                    let permission = may_remove(&roster, *at as u64, spec);
                    let (given, replicas) = (permission.is_ok(), spec.replicas);
                    assert_eq!(
                        given,
                        removal.is_safe(others, spec),
                        "{:?} of {cluster:?}, {others} late, {replicas} wanted, maxSurge 0: {}: {permission:?}",
                        cluster[*at],
                        spec.removes_first()
                    );
                    (questions, permissions) = (questions + 1, permissions + u32::from(given));
                }
            }
        }
    }
    println!("{questions} removals, {permissions} of them permitted");
    assert!(0 < permissions && permissions < questions, "{permissions} of {questions}");
}
