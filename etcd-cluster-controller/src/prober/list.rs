//! Which members are asked for the member list.

use crate::observation::probe::{ListFault, Membership, Probe, Report, RunKind, TargetKey};
use std::collections::{BTreeMap, BTreeSet};

/// How many voters are asked for the list before it counts as unknown.
const ASKED: usize = 3;

/// The cluster ID, and the client URLs to ask for the list. `Err`: what is known without asking.
///
/// Only voters that belong to the recorded cluster and answer linearizable reads are asked: the list of any other
/// member cannot be trusted. If no cluster ID is recorded, all members that answer must belong to one cluster.
pub(super) fn whom(
    probes: &BTreeMap<TargetKey, Probe>,
    recorded: Option<u64>,
) -> Result<(u64, Vec<String>), Membership> {
    let answering: Vec<(&Probe, &Report)> =
        probes.values().filter_map(|probe| Some((probe, probe.report()?))).collect();
    let ids: BTreeSet<u64> = answering.iter().map(|(_, report)| report.cluster_id).collect();
    let cluster_id = match recorded {
        _ if ids.is_empty() => return Err(Membership::NotAsked),
        Some(recorded) if ids.contains(&recorded) => recorded,
        Some(recorded) => return Err(Membership::Unknown(ListFault::OtherCluster { recorded, ids })),
        None => match ids.first() {
            Some(only) if ids.len() == 1 => *only,
            _ => return Err(Membership::Unknown(ListFault::SeveralClusters(ids))),
        },
    };
    let voters = answering.into_iter().filter(|(_, report)| report.cluster_id == cluster_id && !report.learner);
    let (mut sound, failing): (Vec<_>, Vec<_>) = voters.partition(|(_, report)| report.linearizable.is_ok());
    if sound.is_empty() {
        let fault = failing.into_iter().find_map(|(_, report)| report.linearizable.clone().err());
        return Err(Membership::Unknown(ListFault::NoQuorum(fault)));
    }
    // The leader is asked first, because it answers without asking another member.
    sound.sort_by_key(|(_, report)| report.leader != report.member_id);
    Ok((cluster_id, sound.into_iter().take(ASKED).map(|(probe, _)| probe.url.clone()).collect()))
}

/// The ID and the client URL of the leader, if a member fails. The leader knows whether it hears that member.
pub(super) fn leader_to_ask(probes: &BTreeMap<TargetKey, Probe>) -> Option<(u64, String)> {
    let fails = |probe: &Probe| probe.expected.is_some() && probe.outcome.kind() == RunKind::Failing;
    let leads = |probe: &Probe| {
        let report = probe.report().filter(|report| report.leader == report.member_id && report.fault().is_none());
        report.map(|report| (report.member_id, probe.url.clone()))
    };
    probes.values().any(fails).then(|| probes.values().find_map(leads))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::probe::{MemberFault, OurFault, Outcome, Run};
    use k8s_openapi::jiff::Timestamp;

    fn probes(outcomes: Vec<Outcome>) -> BTreeMap<TargetKey, Probe> {
        let named = outcomes.into_iter().enumerate().map(|(index, outcome)| {
            let at = Timestamp::UNIX_EPOCH;
            let probe = Probe {
                url: format!("u{index}"),
                at,
                run: Run::new(RunKind::Unknown, at),
                outcome,
                expected: None,
                answered: None,
            };
            (TargetKey::Machine(format!("m{index}")), probe)
        });
        named.collect()
    }

    fn member(cluster_id: u64, member_id: u64, leader: u64) -> Report {
        Report { leader, ..Report::of_one_that_is_well(cluster_id, member_id) }
    }

    fn asked(recorded: Option<u64>, members: &[(u64, u64)]) -> Result<(u64, Vec<String>), Membership> {
        whom(&probes(members.iter().map(|(c, m)| Outcome::Answered(member(*c, *m, 2))).collect()), recorded)
    }

    #[test]
    fn a_strangers_list_is_never_taken() {
        let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        assert_eq!(asked(Some(0xc), &[(0xc, 1), (0xb, 9), (0xc, 2)]), Ok((0xc, urls(&["u2", "u0"]))));
        let other = ListFault::OtherCluster { recorded: 0xc, ids: [0xb].into() };
        assert_eq!(asked(Some(0xc), &[(0xb, 9)]), Err(Membership::Unknown(other)), "the only one that answers");
        assert_eq!(asked(None, &[(0xc, 1)]), Ok((0xc, urls(&["u0"]))));
        let several = ListFault::SeveralClusters([0xb, 0xc].into());
        assert_eq!(asked(None, &[(0xc, 1), (0xb, 9)]), Err(Membership::Unknown(several)));
        assert_eq!(asked(Some(0xc), &[]), Err(Membership::NotAsked));
    }

    #[test]
    fn the_leader_is_asked_whom_it_hears_only_while_a_member_fails() {
        let healthy = || vec![Outcome::Answered(member(0xc, 1, 2)), Outcome::Answered(member(0xc, 2, 2))];
        assert_eq!(leader_to_ask(&probes(healthy())), None);
        let mut failing = probes([healthy(), vec![Outcome::MemberFault(MemberFault::Refused)]].concat());
        assert_eq!(leader_to_ask(&failing), None, "a machine that boots is not a member yet");
        failing.get_mut(&TargetKey::of("m2")).unwrap().expected = Some(3);
        assert_eq!(leader_to_ask(&failing), Some((2, "u1".to_owned())));
    }

    #[test]
    fn learners_and_members_without_quorum_are_not_asked() {
        let learner = Outcome::Answered(Report { learner: true, ..member(0xc, 1, 2) });
        let leaderless = Report { linearizable: Err(MemberFault::NoLeader), ..member(0xc, 2, 0) };
        let silent = Outcome::MemberFault(MemberFault::Refused);
        let ours = Outcome::OurFault(OurFault::FileDescriptors);
        let given = probes(vec![learner.clone(), Outcome::Answered(leaderless), silent.clone(), ours.clone()]);
        let no_quorum = |fault| Err(Membership::Unknown(ListFault::NoQuorum(fault)));
        assert_eq!(whom(&given, Some(0xc)), no_quorum(Some(MemberFault::NoLeader)));
        assert_eq!(whom(&probes(vec![learner]), Some(0xc)), no_quorum(None));
        assert_eq!(whom(&probes(vec![silent, ours]), Some(0xc)), Err(Membership::NotAsked));
    }
}
