//! Why an EtcdCluster is in its state: the decision, the rule behind it, the evidence, the next deadline, and what to
//! do. Pure.

pub mod advice;

use crate::observation::endpoints_in_use;
use crate::report::{Phase, Report, others};
use crate::snapshot::Snapshot;
use crate::text::{Times, columns, count};
use crate::tree::{due, says};
use advice::{Advice, advice};
use api::endpoints::EndpointLists;
use api::etcd_cluster::{OperationKind, RemovalState};
use api::names;
use controller_support::external::ClusterView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

/// An event about the EtcdCluster or one of its Machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was last seen.
    pub at: Time,
    /// Whether it is a warning.
    pub warning: bool,
    /// Its reason.
    pub reason: String,
    /// Kind and name of the object.
    pub about: String,
    /// Its message.
    pub note: String,
}

/// The maximum number of events that are shown.
const EVENTS: usize = 12;

/// The explanation.
#[must_use]
pub fn lines(snapshot: &Snapshot, events: &[Event], times: Times) -> Vec<String> {
    let report = Report::new(snapshot);
    let mut lines = vec![format!("EtcdCluster {}/{}: {}", report.namespace, report.name, report.phase)];
    let hold = report.hold();
    match hold {
        None if report.phase == Phase::Ready => lines.push("Nothing holds it up: all is as wanted.".to_owned()),
        None => {}
        Some(hold) => {
            section(&mut lines, "Decision", vec![says(hold, times)]);
            section(&mut lines, "Rule", told(&report, |advice| advice.rule));
        }
    }
    section(&mut lines, "Evidence", evidence(snapshot, &report, times));
    section(&mut lines, "Next deadline", report.deadlines.iter().map(|deadline| due(deadline, times)).collect());
    section(&mut lines, "What you can do", told(&report, |advice| advice.what_to_do));
    section(&mut lines, "Recent events", recent(events, times));
    lines.extend(report.notes.iter().map(|note| format!("Note: {note}")));
    lines
}

fn section(lines: &mut Vec<String>, title: &str, content: Vec<String>) {
    if !content.is_empty() {
        lines.push(title.to_owned());
        lines.extend(content.into_iter().map(|line| format!("  {line}")));
    }
}

/// The texts about the conditions that do not have their normal status, the most important one first, each text once.
fn told(report: &Report, text: fn(Advice) -> &'static str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    // Conditions that follow from others are left out.
    for trouble in report.hold().cloned().into_iter().chain(others(&report.conditions)) {
        let text = text(advice(&trouble.reason)).replace("NAMESPACE", &report.namespace).replace("NAME", &report.name);
        if !text.is_empty() && !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

fn evidence(snapshot: &Snapshot, report: &Report, times: Times) -> Vec<String> {
    let mut found: Vec<String> = others(&report.conditions).iter().map(|other| says(other, times)).collect();
    found.extend(recorded(snapshot, times));
    found.extend(annotations(snapshot));
    for machine in &snapshot.machines {
        let hooks = crate::report::hooks(machine);
        if let Some(deleted) = machine.view.deleted.as_ref().filter(|_| !hooks.is_empty()) {
            let ago = times.ago(deleted.0);
            found.push(format!("Machine {} was deleted {ago} and is kept by {}", machine.view.name, hooks.join(", ")));
        }
    }
    let held = report.seats.iter().filter(|seat| seat.paused || seat.marked.is_some());
    found.extend(held.map(|seat| {
        let name = seat.machine.clone().unwrap_or_default();
        match &seat.marked {
            Some(by) => format!("Machine {name} is marked for remediation by {by}"),
            None => format!("Machine {name} is paused, and left alone"),
        }
    }));
    found
}

/// The records in the status.
fn recorded(snapshot: &Snapshot, times: Times) -> Vec<String> {
    let mut found = Vec::new();
    let Some(status) = &snapshot.etcd.status else { return found };
    if let Some(operation) = &status.operation {
        let kind = match operation.kind {
            OperationKind::RemoveMember => "removing",
            OperationKind::MoveLeader => "moving leadership away from",
        };
        let member = status.members.iter().find(|member| member.id == operation.member_id);
        let name = member.map(|member| format!(" ({})", member.name)).unwrap_or_default();
        let tries = match operation.attempt {
            0 => String::new(),
            failed => format!(", {failed} tries have failed"),
        };
        let (id, since) = (&operation.member_id, times.since(operation.since.0));
        found.push(format!("status.operation: {kind} member {id}{name} {since}{tries}"));
    }
    for removed in &status.removed_members {
        let is_under_way = status.operation.as_ref().is_some_and(|operation| operation.member_id == removed.id);
        let state = match removed.state {
            RemovalState::Removing if is_under_way => "is being removed",
            RemovalState::Removing => "may still leave etcd by a removal that was called off, and has been recorded",
            RemovalState::Removed => "has left etcd",
            RemovalState::Missing => "is missing from the member list",
        };
        let since = times.since(removed.since.0);
        found.push(format!(
            "status.removedMembers: member {} of Machine {} {state} {since}",
            removed.id, removed.machine
        ));
    }
    if let Some(last) = &status.last_remediation {
        let retries = match last.retry_count {
            0 => String::new(),
            retries => {
                format!(", after {} in a row", count(usize::try_from(retries).unwrap_or(0), "failed replacement"))
            }
        };
        found.push(format!(
            "status.lastRemediation: the replacement of Machine {} was decided on {}{retries}",
            last.machine,
            times.ago(last.time.0)
        ));
    }
    found
}

fn annotations(snapshot: &Snapshot) -> Vec<String> {
    let etcd = &snapshot.etcd;
    let mut found = Vec::new();
    let lists = EndpointLists::parse(endpoints_in_use(etcd).unwrap_or_default());
    let published = etcd.status.as_ref().map_or("", |status| status.endpoints.as_str());
    // A single list that equals the published one is normal when nothing happens.
    if lists.iter().count() > 1 || lists.iter().any(|list| *list != api::endpoints::parse_list(published)) {
        let mut text =
            format!("annotation endpoints-in-use: API servers may use {}", count(lists.iter().count(), "list"));
        for list in lists.iter() {
            let is_published = *list == api::endpoints::parse_list(published);
            let urls = list.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            text.push_str(&format!("; {urls}{}", if is_published { " (published)" } else { "" }));
        }
        found.push(text);
    }
    if let Some(generation) = etcd.annotations().get(names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION) {
        let now = etcd.metadata.generation.map(|generation| generation.to_string()).unwrap_or_default();
        let counts = if *generation == now { "it is in force" } else { "it does not count" };
        found.push(format!(
            "annotation ignore-endpoints-in-use: {generation}, and the generation of the spec is {now}: {counts}"
        ));
    }
    if let Some(pause) = etcd.annotations().get(names::PAUSED_ANNOTATION) {
        found.push(format!("annotation {}: {pause:?}", names::PAUSED_ANNOTATION));
    }
    found.extend(snapshot.cluster.as_ref().and_then(ClusterView::pause));
    found
}

/// The latest events, the last one first.
fn recent(events: &[Event], times: Times) -> Vec<String> {
    let mut lines = listed(events, times);
    // The first line has the titles.
    lines.truncate(EVENTS + 1);
    lines
}

/// All events, the last one first, below a line of titles; nothing if there are none.
#[must_use]
pub fn listed(events: &[Event], times: Times) -> Vec<String> {
    let mut events: Vec<&Event> = events.iter().collect();
    events.sort_by(|a, b| (b.at.0, &a.reason).cmp(&(a.at.0, &b.reason)));
    let row = |event: &&Event| {
        let kind = if event.warning { "Warning" } else { "Normal" };
        let cells = [times.ago(event.at.0), kind.to_owned(), event.reason.clone(), event.about.clone()];
        cells.into_iter().chain([event.note.lines().collect::<Vec<_>>().join(" ")]).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = events.iter().map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let titles = ["WHEN", "TYPE", "REASON", "ABOUT", "NOTE"].map(str::to_owned).to_vec();
    columns(&[vec![titles], rows].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, NOW, Scene};
    use serde_json::json;

    fn explained(snapshot: &Snapshot) -> String {
        lines(snapshot, &[], Times::Ages(NOW)).join("\n")
    }

    #[test]
    fn what_holds_each_of_them_up() {
        let all = [
            ("healthy", fixture::healthy()),
            ("growing", fixture::growing()),
            ("one down", fixture::one_down()),
            ("rolling", fixture::rolling()),
            ("marked", fixture::marked()),
            ("leaving", fixture::leaving()),
            ("paused", fixture::paused()),
            ("refused", fixture::refused()),
        ];
        let all = all.map(|(what, snapshot)| format!("==== {what}\n{}", explained(&snapshot)));
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn everything_that_is_recorded_is_evidence() {
        let mut scene = Scene::new(3);
        scene.delete(0);
        let annotations = &mut scene.etcd["metadata"]["annotations"];
        annotations[names::IGNORE_ENDPOINTS_IN_USE_ANNOTATION] = json!("2");
        annotations[names::ENDPOINTS_IN_USE_ANNOTATION] = json!("https://10.77.0.11:2379;https://10.77.0.12:2379");
        let mut snapshot = scene.read();
        let status = snapshot.etcd.status.as_mut().unwrap();
        status.operation = serde_json::from_value(json!({"kind": "RemoveMember", "memberID": "100",
            "machineUID": "uid-0", "since": "2026-11-23T07:59:50Z", "attempt": 0}))
        .unwrap();
        status.last_remediation = serde_json::from_value(json!({"machine": "demo-etcd-0", "machineUID": "uid-0",
            "time": "2026-11-23T07:50:00Z", "retryCount": 2}))
        .unwrap();
        status.removed_members = serde_json::from_value(json!([{"id": "100", "machine": "demo-etcd-0",
            "machineUID": "uid-0", "state": "Removing", "since": "2026-11-23T07:59:50Z"}]))
        .unwrap();
        let event = |at: &str, warning, reason: &str| Event {
            at: serde_json::from_value(json!(at)).unwrap(),
            warning,
            reason: reason.to_owned(),
            about: "EtcdCluster demo-etcd".to_owned(),
            note: "the member of Machine demo-etcd-0 is being replaced".to_owned(),
        };
        let events = [
            event("2026-11-23T07:50:00Z", false, "ReplacingMember"),
            event("2026-11-23T07:55:00Z", true, "MemberUnhealthy"),
        ];
        insta::assert_snapshot!(lines(&snapshot, &events, Times::Ages(NOW)).join("\n"));
    }
}
