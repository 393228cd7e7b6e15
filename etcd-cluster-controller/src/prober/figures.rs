//! What metrics show of one cluster beyond its status. These numbers change too often to be written into the status.

use crate::observation::probe::{Report, Snapshot, alarms};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The kinds of alarms that etcd has. Any other kind that a member reports is shown as [`OTHER`], so that an answer
/// cannot choose the names of series.
const ALARMS: [&str; 2] = ["NOSPACE", "CORRUPT"];
const OTHER: &str = "other";

/// Numbers of one cluster, from the latest probes. A number that no member reports is `None` or missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// How often the leader was found to have changed.
    pub(crate) leader_changes: u64,
    /// The longest duration of a member's latest probe, among the members that answered.
    pub(crate) slowest_probe: Option<Duration>,
    /// The largest database, in bytes.
    pub(crate) database_size: Option<i64>,
    /// The smallest quota, in bytes.
    pub(crate) database_quota: Option<i64>,
    /// How many members each kind of alarm is about.
    pub(crate) alarms: BTreeMap<&'static str, usize>,
    /// When the first of the members' certificates expires.
    pub(crate) members_expire: Option<Timestamp>,
}

impl Figures {
    /// Those that follow from the latest probes alone.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let reports = || snapshot.probes.values().filter_map(|probe| probe.report());
        let ours = || reports().filter(|report| report.identity.is_ok());
        Self {
            database_size: ours().map(|report| report.database_size).max(),
            database_quota: ours().filter_map(|report| report.database_quota).min(),
            alarms: counts(ours()),
            members_expire: ours().filter_map(|report| report.certificate_expires).min(),
            ..Self::default()
        }
    }
}

/// How many members each kind of alarm is about, as reported by voters that answer a linearizable read.
fn counts<'a>(reports: impl Iterator<Item = &'a Report>) -> BTreeMap<&'static str, usize> {
    let well = reports.filter(|report| !report.learner && report.fault().is_none());
    let Some(all) = alarms(well) else { return BTreeMap::new() };
    let mut counts: BTreeMap<&'static str, usize> = ALARMS.into_iter().chain([OTHER]).map(|kind| (kind, 0)).collect();
    for alarm in all {
        let kind = ALARMS.into_iter().find(|kind| *kind == alarm.kind).unwrap_or(OTHER);
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// The succession of leaders of one cluster. Probes of different members end in any order, and some of them report an
/// earlier leader. raft's term shows which leader is later.
#[derive(Default)]
pub(super) struct Leaders {
    cluster_id: u64,
    term: u64,
    leader: u64,
    changes: u64,
}

impl Leaders {
    pub(super) fn update(&mut self, report: &Report) {
        let is_known = self.cluster_id == report.cluster_id;
        if report.identity.is_err() || report.leader == 0 || (is_known && report.raft_term <= self.term) {
            return;
        }
        if is_known && report.leader != self.leader {
            self.changes += 1;
        }
        (self.cluster_id, self.term, self.leader) = (report.cluster_id, report.raft_term, report.leader);
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::probe::{Alarm, MemberFault, Outcome, Probe, Run, RunKind, TargetKey};

    fn report() -> Report {
        Report {
            database_size: 1_000,
            database_quota: Some(8_000),
            certificate_expires: Timestamp::from_second(50).ok(),
            ..Report::of_one_that_is_well(0xc, 1)
        }
    }

    fn of(reports: Vec<Report>) -> Figures {
        let at = Timestamp::UNIX_EPOCH;
        let probes = reports.into_iter().enumerate().map(|(index, report)| {
            let run = Run::new(RunKind::Healthy, at);
            let outcome = Outcome::Answered(report);
            (
                TargetKey::Machine(format!("m{index}")),
                Probe { url: String::new(), at, outcome, run, expected: None, answered: None },
            )
        });
        Figures::of(&Snapshot { probes: probes.collect(), ..Snapshot::default() })
    }

    #[test]
    fn the_member_that_is_worst_off_counts() {
        let larger = Report { database_size: 3_000, database_quota: Some(4_000), ..report() };
        let sooner = Report { certificate_expires: Timestamp::from_second(40).ok(), database_quota: None, ..report() };
        let stranger = Report {
            database_size: 9_000,
            certificate_expires: Timestamp::from_second(1).ok(),
            identity: Err(MemberFault::OtherCluster { expected: 0xc, answered: 0xd }),
            ..report()
        };
        let figures = of(vec![report(), larger, sooner, stranger]);
        assert_eq!((figures.database_size, figures.database_quota), (Some(3_000), Some(4_000)));
        assert_eq!(figures.members_expire, Timestamp::from_second(40).ok());
        assert_eq!(of(vec![]), Figures::default(), "what nobody tells is not shown as a number");
    }

    #[test]
    fn alarms_are_counted_by_kind_as_voters_with_a_quorum_tell() {
        let alarm = |member_id, kind: &str| Alarm { member_id, kind: kind.to_owned() };
        let told = vec![alarm(1, "NOSPACE"), alarm(2, "NOSPACE"), alarm(3, "FIRE\u{7}")];
        let both = Report { alarms: told.clone(), ..report() };
        let counts = of(vec![both.clone(), both]).alarms;
        assert_eq!(counts, [("NOSPACE", 2), ("CORRUPT", 0), ("other", 1)].into());
        let cut_off = Report { alarms: told.clone(), linearizable: Err(MemberFault::NoLeader), ..report() };
        let learner = Report { alarms: told, learner: true, ..report() };
        assert_eq!(of(vec![cut_off.clone(), learner]).alarms, BTreeMap::new());
        assert_eq!(of(vec![cut_off, report()]).alarms["NOSPACE"], 0);
    }

    #[test]
    fn a_leader_counts_once_whoever_tells_of_it_late() {
        let led = |raft_term, leader| Report { raft_term, leader, ..report() };
        let mut leaders = Leaders::default();
        let mut after = |told: &[(u64, u64)]| {
            for (term, leader) in told {
                leaders.update(&led(*term, *leader));
            }
            leaders.changes()
        };
        assert_eq!(after(&[(2, 1), (2, 1)]), 0, "the first is not a change");
        assert_eq!(after(&[(3, 2), (2, 1), (3, 2), (2, 1)]), 1, "some members answer late");
        assert_eq!(after(&[(4, 0)]), 1, "there is none");
        assert_eq!(after(&[(5, 2)]), 1, "it was elected again");
        assert_eq!(after(&[(6, 3)]), 2);
        let mut leaders = Leaders::default();
        leaders.update(&led(9, 1));
        leaders.update(&Report { cluster_id: 0xd, ..led(2, 7) });
        leaders.update(&Report { cluster_id: 0xd, ..led(3, 8) });
        assert_eq!(leaders.changes(), 1, "another etcd begins with a term of its own");
    }
}
