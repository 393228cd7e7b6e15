//! What has happened, on one page for each cluster: faults, our writes and the members' answers, side by side.

mod rows;
#[cfg(test)]
mod tests;

use super::record::{Event, Line};
use super::rules::{Violation, Write};
use super::state::{EtcdView, State};
use k8s_openapi::jiff::Timestamp;
use rows::{Row, Weight, rows};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The maximum number of rows of a page. The least important rows are left out first, and of those the ones farthest
/// from a violation or, if there is none, from the end.
const PAGE: usize = 80;
/// Width of a member's column.
const COLUMN: usize = 9;

/// The pages of all clusters in a record that have had a member. If there are violations, only the pages of clusters
/// with violations.
#[must_use]
pub fn timeline(lines: &[Line], writes: &[Write], violations: &[Violation]) -> String {
    let mut pages = String::new();
    let scenario = lines.iter().find_map(|line| match &line.event {
        Event::Begun { scenario } => Some(scenario.as_str()),
        _ => None,
    });
    let (first, last) = (lines.first().map(|line| line.at), lines.last().map(|line| line.at));
    let (Some(first), Some(last)) = (first, last) else { return pages };
    let _ = writeln!(pages, "{}: seconds since {first:.3}", scenario.unwrap_or("a record"));
    pages.push_str("V votes, L learns, * leads, - silent, ? of another cluster; the number is the committed index\n");
    for etcd in clusters(lines) {
        if violations.is_empty() || violations.iter().any(|violation| violation.etcd == etcd) {
            page(&mut pages, &etcd, first, last, &rows(&etcd, lines, writes, violations));
        }
    }
    pages
}

/// EtcdClusters with members, in the order of their first answers.
fn clusters(lines: &[Line]) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        if let Event::Member(member) = &line.event
            && !found.contains(&member.etcd)
        {
            found.push(member.etcd.clone());
        }
    }
    found
}

fn page(page: &mut String, etcd: &str, first: Timestamp, last: Timestamp, rows: &[Row]) {
    let columns = columns(rows);
    let _ = write!(page, "\n{etcd}\n{:>9}", "");
    for name in columns.keys() {
        let short = name.rsplit('-').next().unwrap_or(name);
        let _ = write!(page, " {short:<COLUMN$}");
    }
    page.push('\n');
    let of_interest: Vec<Timestamp> =
        rows.iter().filter(|row| row.weight == Weight::Violation).map(|row| row.at).collect();
    let distance = |row: &Row| {
        let to = |at: &Timestamp| at.duration_since(row.at).abs();
        of_interest.iter().map(to).min().unwrap_or_else(|| to(&last))
    };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|index| (rows[*index].weight, distance(&rows[*index])));
    order.truncate(PAGE);
    order.sort_unstable();
    let mut next = 0;
    for index in order {
        if index > next {
            let _ = writeln!(page, "{:>9} ({} rows left out)", "", index - next);
        }
        next = index + 1;
        let row = &rows[index];
        let seconds = row.at.duration_since(first).as_secs_f64();
        let _ = write!(page, "{seconds:>9.3}");
        for name in columns.keys() {
            let cell = row.cells.get(name).map_or(".", String::as_str);
            let _ = write!(page, " {cell:<COLUMN$}");
        }
        let _ = writeln!(page, " {}", row.text);
    }
    if rows.len() > next {
        let _ = writeln!(page, "{:>9} ({} rows left out)", "", rows.len() - next);
    }
}

/// Names of all members that have a cell in some row.
fn columns(rows: &[Row]) -> BTreeMap<String, ()> {
    rows.iter().flat_map(|row| row.cells.keys().map(|name| (name.clone(), ()))).collect()
}

/// What each member of a cluster reports, by the name of its Machine or, without a Machine, by its URL.
fn cells(state: &State, etcd: &str) -> BTreeMap<String, String> {
    let Some(view) = state.etcds.get(etcd) else { return BTreeMap::new() };
    let cell = |(url, seat): (&String, &super::state::Seat)| {
        let name = if seat.machine.is_empty() { url.clone() } else { seat.machine.clone() };
        (name, said(view, url, seat))
    };
    view.seats.iter().map(cell).collect()
}

fn said(view: &EtcdView, url: &String, seat: &super::state::Seat) -> String {
    let role = match view.list.iter().find(|listed| listed.urls.contains(url)) {
        None => "",
        Some(listed) if listed.learner => "L",
        Some(_) => "V",
    };
    match seat.status() {
        None => format!("{role}-"),
        Some(status) if status.cluster_id != view.id => "?".to_owned(),
        Some(status) => {
            let leads = if status.leader == status.id { "*" } else { "" };
            format!("{role}{leads} {}", status.index)
        }
    }
}
