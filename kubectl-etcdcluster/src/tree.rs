//! A report as a tree of lines. Pure.

use crate::report::{Deadline, Phase, Report, Role, Seat, Trouble, others};
use crate::text::{Times, bytes, columns, count};
use api::conditions::MACHINES_DELETING;
use api::etcd_cluster::Health;

/// The tree of an EtcdCluster: the cluster, below it each Machine and member, then what is waited for and until when.
#[must_use]
pub fn lines(report: &Report, times: Times) -> Vec<String> {
    let mut lines = head(report, times);
    lines.extend(seats(&report.seats, times));
    lines.extend(report.hold().map(|hold| format!("Waits: {}", says(hold, times))));
    lines.extend(report.deadlines.iter().map(|deadline| format!("    {}", due(deadline, times))));
    lines.extend(report.notes.iter().map(|note| format!("Note: {note}")));
    lines
}

/// One short block for an EtcdCluster: its head, and what is waited for.
#[must_use]
pub fn block(report: &Report, times: Times) -> Vec<String> {
    let mut lines = vec![title(report), summary(report)];
    lines.extend(report.hold().map(|hold| format!("    {}", says(hold, times))));
    lines.extend(report.deadlines.first().map(|deadline| format!("    {}", due(deadline, times))));
    lines.extend(report.notes.iter().map(|note| format!("    note: {note}")));
    lines
}

fn title(report: &Report) -> String {
    let of = report.cluster.as_ref().map(|cluster| format!("  of Cluster {cluster}")).unwrap_or_default();
    let mark = match report.phase {
        Phase::Ready => '✓',
        Phase::Unavailable | Phase::Refused => '✗',
        _ => '…',
    };
    format!("{mark} EtcdCluster {}/{}  {}{of}", report.namespace, report.name, report.phase)
}

fn summary(report: &Report) -> String {
    let replicas = &report.replicas;
    let version = match (report.version.as_str(), report.wanted_version.as_str()) {
        ("", wanted) => format!("etcd {wanted} is wanted"),
        (runs, wanted) if runs == wanted => format!("etcd {runs}"),
        (runs, wanted) => format!("etcd {runs}, and {wanted} is wanted"),
    };
    format!(
        "    {}/{} healthy, {}, {} up to date, {version}",
        replicas.ready,
        replicas.wanted,
        count(replicas.machines, "Machine"),
        replicas.up_to_date
    )
}

fn head(report: &Report, times: Times) -> Vec<String> {
    let bar = |line: String| format!("│   {}", line.trim_start());
    let mut lines = vec![title(report), bar(summary(report))];
    if !report.endpoints.is_empty() {
        lines.push(bar(format!("endpoints {}", report.endpoints.join(", "))));
    }
    // The most important condition is shown at the end of the tree, with what it waits for. What a Machine that is
    // being deleted waits for is shown below that Machine.
    let told = report.seats.iter().any(|seat| seat.deleting.as_ref().is_some_and(|going| !going.waits_for.is_empty()));
    let leaving = report.conditions.iter().find(|trouble| told && trouble.type_ == MACHINES_DELETING);
    let leaving = leaving.map_or("", |trouble| trouble.message.as_str());
    lines.extend(others(&report.conditions).iter().map(|other| bar(says(&other.without(leaving), times))));
    lines
}

/// A condition as a sentence, the most important part first.
#[must_use]
pub fn says(trouble: &Trouble, times: Times) -> String {
    let since = times.since(trouble.since.0);
    let head = format!("{} ({} is {} {since})", trouble.reason, trouble.type_, trouble.status);
    if trouble.message.is_empty() { head } else { format!("{head}: {}", trouble.message) }
}

fn seats(seats: &[Seat], times: Times) -> Vec<String> {
    let titles = ["MACHINE", "MEMBER", "HEALTH", "ETCD", "ADDRESS", "DATABASE", "DOMAIN", "UP TO DATE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(seats.iter().map(|seat| row(seat, times)));
    let mut table = columns(&rows).into_iter();
    let mut lines = Vec::new();
    if let Some(titles) = table.next().filter(|_| !seats.is_empty()) {
        lines.push(format!("│     {titles}"));
    }
    for (index, (seat, row)) in seats.iter().zip(table).enumerate() {
        let (branch, below) = if index + 1 == seats.len() { ("└──", "   ") } else { ("├──", "│  ") };
        lines.push(format!("{branch} {} {row}", mark(seat)));
        lines.extend(notes(seat, times).into_iter().map(|note| format!("{below}       {note}")));
    }
    lines
}

fn mark(seat: &Seat) -> char {
    match &seat.member {
        Some(member) if member.health == Health::Unhealthy || member.failing => '✗',
        Some(member) if member.health == Health::Healthy && member.role != Role::Learner => '✓',
        _ => '…',
    }
}

fn row(seat: &Seat, times: Times) -> Vec<String> {
    let member = seat.member.as_ref();
    let role = match member.map(|member| member.role) {
        None if seat.machine_phase.is_empty() => "no member".to_owned(),
        None => format!("no member, {}", seat.machine_phase),
        Some(Role::Leader) => "voter, leads".to_owned(),
        Some(Role::Voter) => "voter".to_owned(),
        Some(Role::Learner) => "learner".to_owned(),
    };
    let health = member.map(|member| {
        let word = match (member.health, member.failing) {
            (Health::Healthy, false) => "healthy",
            (Health::Healthy, true) => "failing",
            (Health::Unhealthy, _) => "unhealthy",
            (Health::Unknown, true) => "failing, unknown",
            (Health::Unknown, false) => "unknown",
        };
        let since = member.since.as_ref().map(|since| format!(" {}", times.since(since.0)));
        format!("{word}{}", since.unwrap_or_default())
    });
    let size = member.and_then(|member| member.database_size_bytes).map(bytes);
    let up_to_date = seat.up_to_date.map(|is| if is { "yes" } else { "no" }.to_owned());
    let name = seat.machine.clone().or_else(|| member.map(|member| format!("(no Machine; member {})", member.id)));
    vec![
        name.unwrap_or_default(),
        role,
        health.unwrap_or_default(),
        member.map(|member| member.version.clone()).unwrap_or_default(),
        seat.address.clone().unwrap_or_default(),
        size.unwrap_or_default(),
        seat.failure_domain.clone().unwrap_or_default(),
        up_to_date.unwrap_or_default(),
    ]
}

fn notes(seat: &Seat, times: Times) -> Vec<String> {
    let mut notes = Vec::new();
    let message = seat.member.as_ref().map(|member| member.message.clone()).filter(|message| !message.is_empty());
    notes.extend(message);
    if !seat.differs_in.is_empty() {
        notes.push(format!("does not match the spec: {}", seat.differs_in.join("; ")));
    }
    notes.extend(seat.marked.as_ref().map(|by| format!("marked for remediation by {by}")));
    if seat.paused {
        notes.push("paused: it is left alone".to_owned());
    }
    if let Some(deleting) = &seat.deleting {
        let ago = times.ago(deleting.since.0);
        let kept = match deleting.hooks.as_slice() {
            [] => "no hook keeps it".to_owned(),
            hooks => format!("kept by {}", hooks.join(", ")),
        };
        let waits = match deleting.waits_for.as_str() {
            "" => String::new(),
            waits => format!(": {waits}"),
        };
        notes.push(format!("deleted {ago}, {kept}{waits}"));
    }
    notes
}

/// A deadline as a sentence.
#[must_use]
pub fn due(deadline: &Deadline, times: Times) -> String {
    format!("{}: {}", times.at(deadline.at.0), deadline.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, NOW};
    use crate::snapshot::Snapshot;

    fn drawn(snapshot: &Snapshot) -> String {
        lines(&Report::new(snapshot), Times::Ages(NOW)).join("\n")
    }

    #[test]
    fn three_that_are_healthy() {
        insta::assert_snapshot!(drawn(&fixture::healthy()));
    }

    #[test]
    fn one_that_grows() {
        insta::assert_snapshot!(drawn(&fixture::growing()));
    }

    #[test]
    fn a_member_whose_machine_has_no_address_yet() {
        insta::assert_snapshot!(drawn(&fixture::joining()));
    }

    #[test]
    fn one_member_is_down() {
        insta::assert_snapshot!(drawn(&fixture::one_down()));
    }

    #[test]
    fn a_rollout_midway() {
        insta::assert_snapshot!(drawn(&fixture::rolling()));
    }

    #[test]
    fn a_marked_machine() {
        insta::assert_snapshot!(drawn(&fixture::marked()));
    }

    #[test]
    fn a_deleted_machine_whose_hook_waits() {
        insta::assert_snapshot!(drawn(&fixture::leaving()));
    }

    #[test]
    fn a_pause() {
        insta::assert_snapshot!(drawn(&fixture::paused()));
    }

    #[test]
    fn a_version_that_is_refused() {
        insta::assert_snapshot!(drawn(&fixture::refused()));
    }

    #[test]
    fn blocks_of_several() {
        let all = [fixture::healthy(), fixture::one_down(), fixture::refused()];
        let blocks = all.map(|snapshot| block(&Report::new(&snapshot), Times::Ages(NOW)).join("\n"));
        insta::assert_snapshot!(blocks.join("\n"));
    }

    #[test]
    fn points_in_time_do_not_change_by_themselves() {
        let earlier = fixture::one_down();
        let mut later = earlier.clone();
        later.now = later.now.checked_add(k8s_openapi::jiff::SignedDuration::from_secs(5)).unwrap();
        let at = |snapshot: &Snapshot| lines(&Report::new(snapshot), Times::Points);
        assert_eq!(at(&earlier), at(&later));
        assert!(at(&earlier).iter().any(|line| line.contains("since 2026-11-23T07:59:20Z")), "{:#?}", at(&earlier));
    }
}
