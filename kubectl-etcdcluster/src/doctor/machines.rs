//! Clocks and disks of the machines, by the metrics of the members. Members are asked only with `--dial`, and only
//! answer the client certificate for Prometheus.

use super::clocks::CLOSE;
use super::{Finding, Installation, Subject};
use crate::dial::{Figures, Fsyncs, MemberMetrics};

/// 99 of 100 writes should be on disk within this time, in seconds. etcd's documentation says 10 ms. etcd's buckets end
/// at 8 and 16 ms, so only a disk that exceeds 16 ms is certainly too slow.
const SLOW: f64 = 0.016;

/// Fewer writes say nothing: there are some whenever etcd starts.
const FEW: f64 = 100.0;

pub(super) fn clocks(subject: &Subject, _: &Installation) -> Vec<Finding> {
    match &subject.metrics {
        None => Vec::new(),
        Some(Err(why)) => vec![Finding::unseen(
            format!("clocks and disks of the members' machines: {why}"),
            "set spec.metricsClientSecret: members show their metrics only to a client with that certificate. It opens all of etcd",
        )],
        Some(Ok(metrics)) => of_clocks(metrics),
    }
}

pub(super) fn disks(subject: &Subject, _: &Installation) -> Vec<Finding> {
    subject.metrics.iter().flatten().flat_map(|metrics| of_disks(metrics)).collect()
}

fn of_clocks(metrics: &[MemberMetrics]) -> Vec<Finding> {
    let mut found = Vec::new();
    for MemberMetrics { member, answer } in metrics {
        match answer {
            Err(why) => {
                found.push(Finding::unseen(format!("member {member} does not tell of its clock and disk: {why}"), ""));
            }
            Ok(Figures { ahead, .. }) if ahead.unsigned_abs() > CLOSE => {
                let (seconds, way) = (ahead.unsigned_abs(), if *ahead > 0 { "ahead of" } else { "behind" });
                found.push(Finding::warning(
                    format!("the clock of member {member} is {seconds} s {way} this computer's"),
                    "set both by NTP: times in logs do not match, and where clocks are more than 24 h apart, a new certificate is not valid yet",
                ));
            }
            Ok(_) => {}
        }
    }
    if found.is_empty() {
        let count = metrics.len();
        found.push(Finding::ok(format!("clocks of all {count} members are within {CLOSE} s of this computer's")));
    }
    found
}

fn of_disks(metrics: &[MemberMetrics]) -> Vec<Finding> {
    let all = metrics.iter().filter_map(|of_one| Some((&of_one.member, of_one.answer.as_ref().ok()?.fsyncs?)));
    let judged: Vec<(&String, Fsyncs)> = all.filter(|(_, fsyncs)| fsyncs.count >= FEW).collect();
    let slow = judged.iter().filter(|(_, fsyncs)| fsyncs.within > SLOW);
    let mut found: Vec<Finding> = slow
        .map(|(member, fsyncs)| {
            let count = fsyncs.count;
            Finding::warning(
                format!(
                    "the disk of member {member} is slow: of {count:.0} writes, more than one in 100 took longer than {}",
                    milliseconds(SLOW)
                ),
                "etcd wants 99 of 100 on the disk within 10 ms: give its machines faster disks, for etcd alone",
            )
        })
        .collect();
    let slowest = judged.iter().map(|(_, fsyncs)| fsyncs.within).reduce(f64::max);
    if let Some(within) = slowest.filter(|_| found.is_empty()) {
        let (count, within) = (judged.len(), milliseconds(within));
        found.push(Finding::ok(format!("of {count} members, 99 of 100 writes were on the disk within {within}")));
    }
    if judged.len() < metrics.iter().filter(|of_one| of_one.answer.is_ok()).count() {
        found.push(Finding::unseen(
            format!("some members have written less than {FEW:.0} times since etcd started"),
            "",
        ));
    }
    found
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn metrics(member: &str, ahead: i64, fsyncs: Option<(f64, f64)>) -> MemberMetrics {
        let fsyncs = fsyncs.map(|(count, within)| Fsyncs { count, within });
        MemberMetrics { member: member.to_owned(), answer: Ok(Figures { ahead, fsyncs }) }
    }

    fn said(found: &[Finding]) -> Vec<(Verdict, &str)> {
        found.iter().map(|finding| (finding.verdict, finding.seen.as_str())).collect()
    }

    #[test]
    fn a_clock_that_is_far_off_is_named() {
        let well = of_clocks(&[metrics("a", 10, None), metrics("b", -10, None)]);
        assert_eq!(said(&well), [(Verdict::Ok, "clocks of all 2 members are within 10 s of this computer's")]);
        let silent = MemberMetrics { member: "c".to_owned(), answer: Err("Connection refused".to_owned()) };
        let ill = of_clocks(&[metrics("a", 11, None), metrics("b", -70, None), silent]);
        let expected = [
            (Verdict::Warning, "the clock of member a is 11 s ahead of this computer's"),
            (Verdict::Warning, "the clock of member b is 70 s behind this computer's"),
            (Verdict::Unseen, "member c does not tell of its clock and disk: Connection refused"),
        ];
        assert_eq!(said(&ill), expected);
    }

    #[test]
    fn a_slow_disk_is_named_and_one_that_has_hardly_written_is_not_judged() {
        let well = of_disks(&[metrics("a", 0, Some((100.0, 0.016))), metrics("b", 0, Some((5_000.0, 0.002)))]);
        assert_eq!(said(&well), [(Verdict::Ok, "of 2 members, 99 of 100 writes were on the disk within 16 ms")]);
        let ill = of_disks(&[metrics("a", 0, Some((1_000.0, 0.032))), metrics("b", 0, Some((99.0, 8.0)))]);
        let slow = "the disk of member a is slow: of 1000 writes, more than one in 100 took longer than 16 ms";
        let few = "some members have written less than 100 times since etcd started";
        assert_eq!(said(&ill), [(Verdict::Warning, slow), (Verdict::Unseen, few)]);
        assert!(of_disks(&[]).is_empty());
    }
}
