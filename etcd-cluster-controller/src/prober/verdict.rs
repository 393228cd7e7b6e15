//! The changes of a snapshot for which its EtcdCluster is reconciled.
//!
//! For each target, these are: the kind of the outcome and of the run; whether the member has failed for long enough to
//! be unhealthy, and also for the start-up grace in addition; the URL, IDs, leader, role, version and alarms; and the
//! size of the database, if it changes by a tenth. For the cluster, they are the content of the member list, and whom
//! the leader hears. Times do not count, and neither does the text of a fault, because it only alternates between ways
//! of not answering.

use super::Probes;
use crate::observation::Member;
use crate::observation::probe::{
    Alarm, ListFault, MemberFault, Membership, Outcome, Probe, Report, RunKind, Snapshot, TargetKey,
};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};

/// What has been reported to the reconcile.
#[derive(Default, PartialEq)]
pub(super) struct Reported {
    probes: BTreeMap<TargetKey, ProbeVerdict>,
    membership: Option<ListVerdict>,
    heard: Option<BTreeSet<u64>>,
}

#[derive(PartialEq)]
struct ProbeVerdict {
    url: String,
    outcome: Discriminant<Outcome>,
    run: RunKind,
    unhealthy: bool,
    /// Like `unhealthy`, with the grace that a stranger may have in addition.
    given_up: bool,
    answered: Option<Answered>,
}

#[derive(PartialEq)]
struct Answered {
    ids: [u64; 3],
    learner: bool,
    version: String,
    alarms: Vec<Alarm>,
    identity: Result<(), MemberFault>,
    linearizable: bool,
    /// The size that was reported last.
    database_size: i64,
}

#[derive(PartialEq)]
enum ListVerdict {
    NotAsked,
    Unknown(Discriminant<ListFault>),
    Known(u64, BTreeMap<u64, Member>),
}

impl Reported {
    /// Takes over a snapshot, and returns whether it has news.
    pub(super) fn update(&mut self, snapshot: &Snapshot, wanted: &Probes) -> bool {
        let probes = snapshot.probes.iter().map(|(key, probe)| {
            let told = self.probes.get(key).and_then(|told| told.answered.as_ref());
            (key.clone(), probe_verdict(probe, wanted, told))
        });
        let membership = Some(list_verdict(&snapshot.membership));
        let now = Self { probes: probes.collect(), membership, heard: snapshot.heard.clone() };
        let news = now != *self;
        *self = now;
        news
    }
}

fn probe_verdict(probe: &Probe, wanted: &Probes, told: Option<&Answered>) -> ProbeVerdict {
    ProbeVerdict {
        url: probe.url.clone(),
        outcome: discriminant(&probe.outcome),
        run: probe.run.kind,
        unhealthy: probe.run.has_failed_for(wanted.unhealthy_after, probe.at, wanted.interval),
        given_up: probe.run.has_failed_for(wanted.unhealthy_after + wanted.grace, probe.at, wanted.interval),
        answered: probe.report().map(|report| answered(report, told)),
    }
}

fn answered(report: &Report, told: Option<&Answered>) -> Answered {
    let size = report.database_size;
    let told = told.map(|told| told.database_size);
    let told = told.filter(|told| size.abs_diff(*told) < (told.unsigned_abs() / 10).max(1));
    Answered {
        ids: [report.member_id, report.cluster_id, report.leader],
        learner: report.learner,
        version: report.version.clone(),
        alarms: report.alarms.clone(),
        identity: report.identity.clone(),
        linearizable: report.linearizable.is_ok(),
        database_size: told.unwrap_or(size),
    }
}

fn list_verdict(membership: &Membership) -> ListVerdict {
    match membership {
        Membership::NotAsked => ListVerdict::NotAsked,
        Membership::Unknown(fault) => ListVerdict::Unknown(discriminant(fault)),
        Membership::Known { cluster_id, members, .. } => ListVerdict::Known(*cluster_id, members.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::probe::{OurFault, Run};
    use k8s_openapi::jiff::Timestamp;
    use std::time::Duration;

    fn wanted() -> Probes {
        let (interval, unhealthy_after) = (Duration::from_secs(10), Duration::from_secs(60));
        let grace = Duration::from_secs(600);
        Probes { ca: None, cluster_id: None, targets: Vec::new(), interval, unhealthy_after, grace }
    }

    fn report() -> Report {
        Report { database_size: 1_000, ..Report::of_one_that_is_well(0xc, 1) }
    }

    fn snapshot(outcome: Outcome) -> Snapshot {
        let at = Timestamp::UNIX_EPOCH;
        let probe = Probe {
            url: "https://a:2379".to_owned(),
            at,
            run: Run::new(outcome.kind(), at),
            outcome,
            expected: None,
            answered: None,
        };
        Snapshot { probes: [(TargetKey::of("a"), probe)].into(), ..Snapshot::default() }
    }

    /// Whether each of these snapshots is news after the one before.
    fn news(snapshots: &[Snapshot]) -> Vec<bool> {
        let mut told = Reported::default();
        snapshots.iter().map(|snapshot| told.update(snapshot, &wanted())).collect()
    }

    #[test]
    fn what_changes_a_decision_is_told_once() {
        let changes: [fn(&mut Report); 9] = [
            |report| report.member_id = 2,
            |report| report.cluster_id = 0xd,
            |report| report.leader = 0,
            |report| report.learner = true,
            |report| report.version = "3.6.1".to_owned(),
            |report| report.alarms.push(Alarm { member_id: 1, kind: "NOSPACE".to_owned() }),
            |report| report.identity = Err(MemberFault::OtherMember { expected: 2, answered: 1 }),
            |report| report.linearizable = Err(MemberFault::NoLeader),
            |report| report.database_size = 1_100,
        ];
        for (index, change) in changes.into_iter().enumerate() {
            let mut changed = report();
            change(&mut changed);
            let changed = snapshot(Outcome::Answered(changed));
            let told = news(&[snapshot(Outcome::Answered(report())), changed.clone(), changed]);
            assert_eq!(told, [true, true, false], "{index}");
        }
        let outcomes = [
            Outcome::MemberFault(MemberFault::Refused),
            Outcome::OurFault(OurFault::FileDescriptors),
            Outcome::NoAddress,
        ];
        for outcome in outcomes {
            let gone = snapshot(outcome);
            assert_eq!(news(&[snapshot(Outcome::Answered(report())), gone.clone(), gone]), [true, true, false]);
        }
    }

    #[test]
    fn what_changes_nothing_is_not_told() {
        let later = |mut snapshot: Snapshot, second: i64| {
            let probe = snapshot.probes.get_mut(&TargetKey::of("a")).unwrap();
            probe.at = Timestamp::from_second(second).unwrap();
            probe.run = probe.run.next(probe.outcome.kind(), probe.at, wanted().interval);
            snapshot
        };
        let well = || snapshot(Outcome::Answered(report()));
        let grown = snapshot(Outcome::Answered(Report { database_size: 1_099, ..report() }));
        assert_eq!(news(&[well(), later(well(), 10), grown]), [true, false, false]);
        let failing = |fault| snapshot(Outcome::MemberFault(fault));
        assert_eq!(news(&[failing(MemberFault::Refused), failing(MemberFault::Unreachable)]), [true, false]);
    }

    #[test]
    fn a_size_that_creeps_is_told_by_the_tenth() {
        let sizes = [1_000, 1_090, 1_100, 1_190, 1_210, 1_000];
        let sized = |database_size: &i64| Report { database_size: *database_size, ..report() };
        let snapshots: Vec<Snapshot> = sizes.iter().map(|size| snapshot(Outcome::Answered(sized(size)))).collect();
        assert_eq!(news(&snapshots), [true, false, true, false, true, true]);
    }

    #[test]
    fn a_member_that_becomes_unhealthy_is_told_once() {
        let failing = |seconds: i64| {
            let mut snapshot = snapshot(Outcome::MemberFault(MemberFault::Refused));
            let probe = snapshot.probes.get_mut(&TargetKey::of("a")).unwrap();
            probe.at = Timestamp::from_second(seconds).unwrap();
            probe.run.last = probe.at;
            snapshot
        };
        assert_eq!(news(&[failing(0), failing(59), failing(60), failing(70)]), [true, false, true, false]);
        assert_eq!(news(&[failing(60), failing(659), failing(660), failing(670)]), [true, false, true, false]);
    }

    #[test]
    fn another_member_list_is_told() {
        let listed = |second, learner| {
            let members = [(1, Member { learner, ..Member::default() })].into();
            let at = Timestamp::from_second(second).unwrap();
            Snapshot { membership: Membership::Known { cluster_id: 0xc, members, at }, ..Snapshot::default() }
        };
        assert_eq!(news(&[listed(0, true), listed(10, true), listed(20, false)]), [true, false, true]);
    }
}
