//! The condition MachinesReady, which sums up the `Ready` conditions of the Machines. It uses the words that Cluster
//! API's own owners of Machines use.

use crate::plan::View;
use api::conditions::{self as c, Draft, reasons};
use controller_support::external::{MachineView, Ready};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many messages are shown, and how many Machines are named for each message. Cluster API has the same number.
const MOST: usize = 3;

/// How bad a condition is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Issue,
    Unknown,
    Well,
}

impl Weight {
    fn of(ready: &Ready) -> Self {
        match ready.status {
            Some(false) => Self::Issue,
            None => Self::Unknown,
            Some(true) => Self::Well,
        }
    }

    /// The words for Machines that are not named.
    fn others(self) -> &'static str {
        match self {
            Self::Issue => "with other issues",
            Self::Unknown => "with status unknown",
            Self::Well => "with additional info",
        }
    }
}

pub(super) fn machines_ready(view: &View<'_>) -> Draft {
    let machines = view.observation.machines.values();
    let ready = |machine: &MachineView| machine.ready.clone().unwrap_or_else(not_reported);
    let all: Vec<(&str, Ready)> = machines.map(|machine| (machine.name.as_str(), ready(machine))).collect();
    let worst = all.iter().map(|(_, ready)| Weight::of(ready)).min();
    let (status, reason) = match worst {
        None => return Draft::new(c::MACHINES_READY, true, reasons::NO_REPLICAS, ""),
        Some(Weight::Issue) => (Some(false), reasons::NOT_READY),
        Some(Weight::Unknown) => (None, reasons::READY_UNKNOWN),
        Some(Weight::Well) => (Some(true), reasons::READY),
    };
    // If all Machines are ready, those that have a message are shown. Otherwise, only those that are not ready.
    let is_told = |(_, ready): &&(&str, Ready)| match status {
        Some(true) => !ready.message.is_empty(),
        Some(false) | None => ready.status != Some(true),
    };
    let message = message(all.iter().filter(is_told));
    Draft { type_: c::MACHINES_READY, status, reason, message }
}

fn not_reported() -> Ready {
    Ready { status: None, message: format!("Condition {} not yet reported", c::MACHINE_READY) }
}

/// Shows the same message of several Machines once. The worst messages come first, then those of the most Machines.
fn message<'a>(all: impl Iterator<Item = &'a (&'a str, Ready)>) -> String {
    let mut named: BTreeMap<(Weight, &str), Vec<&str>> = BTreeMap::new();
    for (name, ready) in all {
        named.entry((Weight::of(ready), ready.message.as_str())).or_default().push(name);
    }
    let mut groups: Vec<_> = named.into_iter().collect();
    groups.sort_by_key(|((weight, _), names)| (*weight, Reverse(names.len()), names.clone()));
    let mut lines: Vec<String> = groups
        .iter()
        .take(MOST)
        .map(|((_, message), names)| format!("* {}:{}", machines(names), indented(message)))
        .collect();
    let mut others: BTreeMap<Weight, usize> = BTreeMap::new();
    for ((weight, _), names) in groups.iter().skip(MOST) {
        *others.entry(*weight).or_default() += names.len();
    }
    lines.extend(others.into_iter().map(|(weight, count)| {
        let machines = if count == 1 { "Machine" } else { "Machines" };
        format!("And {count} {machines} {}", weight.others())
    }));
    lines.join("\n")
}

fn machines(names: &[&str]) -> String {
    match names {
        [one] => format!("Machine {one}"),
        some if some.len() <= MOST => format!("Machines {}", some.join(", ")),
        many => format!("Machines {}, ... ({} more)", many[..MOST].join(", "), many.len() - MOST),
    }
}

/// A message that is a list, or has several lines, goes below the names of its Machines.
fn indented(message: &str) -> String {
    let is_item = |line: &str| line.contains("* ");
    if !message.contains('\n') && !is_item(message) {
        return format!(" {message}");
    }
    let only_items = message.lines().all(is_item);
    let line = |line: &str| match (only_items, is_item(line)) {
        (true, _) => format!("\n  {line}"),
        (false, true) => format!("\n    {line}"),
        (false, false) => format!("\n  * {line}"),
    };
    message.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;

    /// The condition if Machines report these conditions.
    fn told(machines: &[(Option<bool>, &str)]) -> (Option<bool>, &'static str, String) {
        let mut story = Story::new(7);
        for (index, (status, message)) in machines.iter().enumerate() {
            let ready = Ready { status: *status, message: (*message).to_owned() };
            story.machine(index).ready = Some(ready);
        }
        let draft = machines_ready(&View::new(&story.observation));
        (draft.status, draft.reason, draft.message)
    }

    #[test]
    fn what_machines_say_is_added_up() {
        assert_eq!(told(&[]), (Some(true), "NoReplicas", String::new()));
        let well = (Some(true), "");
        assert_eq!(told(&[well, well]), (Some(true), "Ready", String::new()));
        let node = (None, "* NodeHealthy: Waiting for a Node");
        let unknown = "* Machine demo-etcd-1:\n  * NodeHealthy: Waiting for a Node".to_owned();
        assert_eq!(told(&[well, node]), (None, "ReadyUnknown", unknown));
        let issue = (Some(false), "it is off");
        let all = "* Machine demo-etcd-2: it is off\n* Machines demo-etcd-0, demo-etcd-1:\n  * NodeHealthy: Waiting for a Node";
        assert_eq!(told(&[node, node, issue, well]), (Some(false), "NotReady", all.to_owned()));
    }

    #[test]
    fn a_machine_without_the_condition_is_not_known_to_be_ready() {
        let mut story = Story::new(3);
        story.machine(0);
        let draft = machines_ready(&View::new(&story.observation));
        assert_eq!((draft.status, draft.reason), (None, "ReadyUnknown"));
        assert_eq!(draft.message, "* Machine demo-etcd-0: Condition Ready not yet reported");
    }

    #[test]
    fn no_more_is_told_than_anybody_reads() {
        let same = (None, "a\n* b");
        let (_, _, message) = told(&[same, same, same, same]);
        assert_eq!(message, "* Machines demo-etcd-0, demo-etcd-1, demo-etcd-2, ... (1 more):\n  * a\n    * b");
        let (no, what) = (Some(false), None);
        let (_, _, message) = told(&[(no, "a"), (no, "b"), (no, "c"), (no, "d"), (what, "e"), (what, "f")]);
        let lines: Vec<&str> = message.lines().skip(3).collect();
        assert_eq!(lines, ["And 1 Machine with other issues", "And 2 Machines with status unknown"]);
    }
}
