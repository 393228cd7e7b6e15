//! The rows of one cluster's page, before the rows that do not fit are left out.

use super::cells;
use crate::observer::record::{Answer, Event, Line, Listed, Status, namespace};
use crate::observer::rules::{Violation, Write};
use crate::observer::state::State;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// How important a row is, most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    Violation,
    Fault,
    Member,
    Object,
    Write,
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) at: Timestamp,
    pub(super) weight: Weight,
    /// What each member reports at that moment.
    pub(super) cells: BTreeMap<String, String>,
    pub(super) text: String,
}

/// Everything that concerns a cluster, in order of time.
pub(super) fn rows(etcd: &str, lines: &[Line], writes: &[Write], violations: &[Violation]) -> Vec<Row> {
    let is_here = |write: &&Write| namespace(&write.name) == namespace(etcd);
    let mut writes = writes.iter().filter(is_here).peekable();
    let mut violations: Vec<&Violation> = violations.iter().filter(|violation| violation.etcd == etcd).collect();
    violations.sort_by_key(|violation| violation.at);
    let mut violations = violations.into_iter().peekable();
    let mut rows: Vec<Row> = Vec::new();
    let mut state = State::default();
    for line in lines {
        while let Some(write) = writes.next_if(|write| write.at <= line.at) {
            add_write(&mut rows, write, &state, etcd);
        }
        while let Some(violation) = violations.next_if(|violation| violation.at <= line.at) {
            let text = format!("VIOLATION, {}: {}", violation.rule, violation.what);
            rows.push(Row { at: violation.at, weight: Weight::Violation, cells: cells(&state, etcd), text });
        }
        let before = state.clone();
        state.apply(line);
        if let Some((weight, text)) = told(etcd, namespace(etcd), &line.event, &before, &state) {
            rows.push(Row { at: line.at, weight, cells: cells(&state, etcd), text });
        }
    }
    rows
}

/// Adds a row for a write. If the last row is the same write, that row is extended instead.
fn add_write(rows: &mut Vec<Row>, write: &Write, state: &State, etcd: &str) {
    let who = if write.ours { "we" } else { "by hand" };
    let refused = if write.code < 400 { String::new() } else { format!(": {}", write.code) };
    let text = format!("{who}: {}{refused}", write.deed());
    match rows.last_mut() {
        Some(last) if last.text == text || last.text.starts_with(&format!("{text} (again")) => {
            last.text = format!("{text} (again, until {:.3})", write.at);
        }
        _ => rows.push(Row { at: write.at, weight: Weight::Write, cells: cells(state, etcd), text }),
    }
}

/// What is new for this cluster, in words.
fn told(etcd: &str, namespace: &str, event: &Event, before: &State, after: &State) -> Option<(Weight, String)> {
    let (was, is) = (before.etcds.get(etcd), after.etcds.get(etcd));
    match event {
        Event::Fault(fault) => {
            let concerns = fault.machines.iter().any(|machine| machine.starts_with(&format!("{namespace}/")));
            (concerns || fault.machines.is_empty()).then(|| (Weight::Fault, format!("FAULT: {}", fault.what)))
        }
        Event::Note { text, namespace: only } => {
            (only.is_empty() || only == namespace).then(|| (Weight::Fault, text.clone()))
        }
        Event::Late { millis } => Some((Weight::Fault, format!("the observer was held up for {millis} ms"))),
        Event::Member(member) if member.etcd == etcd => {
            let (was, is) = (was?, is?);
            let mut news = lists(&was.list, &is.list);
            let (seat, now) = (was.seats.get(&member.url), is.seats.get(&member.url)?);
            let name = if now.machine.is_empty() { &member.url } else { &now.machine };
            match (seat.and_then(|seat| seat.status()), &member.answer) {
                (None, Answer::Status(_)) => news.push(format!("{name} answers")),
                (Some(_), Answer::Silent(why)) => news.push(format!("{name} is silent: {why}")),
                (Some(old), Answer::Status(new)) if old.leader != new.leader && new.leader == new.id => {
                    news.push(format!("{name} leads in term {}", new.term));
                }
                _ => {}
            }
            if let Answer::Status(new) = &member.answer {
                news.extend(complaints(seat.and_then(|seat| seat.status()), new, name));
            }
            (!news.is_empty()).then(|| (Weight::Member, news.join("; ")))
        }
        Event::Disk(disk) if disk.etcd == etcd => {
            Some((Weight::Member, format!("the log on the disk of {} ends at index {}", disk.url, disk.last)))
        }
        Event::Etcd(new) if new.name == etcd => {
            let old = was.map(|view| view.object.clone()).unwrap_or_default();
            let mut news = Vec::new();
            let mut changed = |is: bool, text: String| news.extend(is.then_some(text));
            changed(old.replicas != new.replicas, format!("{} members are wanted", new.replicas));
            changed(old.ready != new.ready, format!("ready: {}", new.ready));
            changed(old.deleting != new.deleting, "the EtcdCluster is deleted".to_owned());
            changed(old.endpoints != new.endpoints, format!("published: {}", new.endpoints.join(",")));
            changed(old.in_use != new.in_use, format!("in use: {}", new.in_use.join(",")));
            let operation = |it: &crate::observer::record::Operation| format!("{} {}", it.what, it.member);
            let operation = new.operation.as_ref().map_or_else(|| "none".to_owned(), operation);
            changed(old.operation != new.operation, format!("operation: {operation}"));
            (!news.is_empty()).then(|| (Weight::Object, news.join("; ")))
        }
        Event::Machine(new) if new.etcd == etcd => {
            let old = before.machines.get(&new.name);
            let text = match old {
                None => format!("Machine {} is there", new.name),
                Some(old) if !old.deleting && new.deleting => format!("Machine {} is deleted", new.name),
                Some(old) if old.phase != new.phase => format!("Machine {} is {}", new.name, new.phase),
                Some(_) => return None,
            };
            Some((Weight::Object, text))
        }
        Event::Gone { what, name } if what == "machine" => {
            let ours = before.machines.get(name).is_some_and(|machine| machine.etcd == etcd);
            ours.then(|| (Weight::Object, format!("Machine {name} is gone")))
        }
        Event::ControlPlane(new) if is.is_some_and(|view| view.object.cluster == new.cluster) => {
            let old = before.control_planes.get(&new.name).map(|old| old.endpoints.clone()).unwrap_or_default();
            let text = || format!("control plane {} has {}", new.name, new.endpoints.join(","));
            (old != new.endpoints).then(|| (Weight::Object, text()))
        }
        Event::ApiServer(new) if is.is_some_and(|view| view.object.cluster == new.cluster) => {
            let ready = new.ready.map_or("is made", |ready| if ready { "is ready" } else { "is not ready" });
            // The endpoints of an API server behind a load balancer are not known.
            let with = if new.endpoints.is_empty() { "" } else { ", with " };
            Some((Weight::Object, format!("API server {} {ready}{with}{}", new.name, new.endpoints.join(","))))
        }
        Event::Gone { what, name } if what == "apiServer" => {
            let server = before.api_servers.get(name)?;
            let ours = is.is_some_and(|view| view.object.cluster == server.cluster);
            ours.then(|| (Weight::Object, format!("API server {name} is gone")))
        }
        _ => None,
    }
}

/// The errors that a member reports, alarms included, if they have changed.
fn complaints(old: Option<&Status>, new: &Status, name: &str) -> Option<String> {
    let before = old.map(|status| status.errors.as_slice()).unwrap_or_default();
    match new.errors.as_slice() {
        now if now == before => None,
        [] => Some(format!("{name} complains of nothing any more")),
        now => Some(format!("{name} complains: {}", now.join(", "))),
    }
}

/// Which members have joined, left, or become voters.
fn lists(was: &[Listed], is: &[Listed]) -> Vec<String> {
    let find = |list: &[Listed], id: &str| list.iter().find(|listed| listed.id == id).cloned();
    let name = |listed: &Listed| if listed.name.is_empty() { listed.id.clone() } else { listed.name.clone() };
    let mut news = Vec::new();
    for listed in is {
        match find(was, &listed.id) {
            None if listed.learner => news.push(format!("{} joins as a learner", name(listed))),
            None => news.push(format!("{} is a voter", name(listed))),
            Some(old) if old.learner && !listed.learner => news.push(format!("{} is promoted", name(listed))),
            Some(_) => {}
        }
    }
    let left = was.iter().filter(|listed| find(is, &listed.id).is_none());
    news.extend(left.map(|listed| format!("{} has left", name(listed))));
    news
}
