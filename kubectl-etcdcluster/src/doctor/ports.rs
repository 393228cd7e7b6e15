//! The state of the ports 2379 and 2380: from the members' status and, with `--dial`, from connections from this
//! computer, which may be anywhere.

use super::{Finding, Installation, Subject};
use crate::dial::Dialed;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let members = subject.live.as_ref().and_then(|live| live.pointer("/status/members")?.as_array());
    let all: Vec<&Value> = members.into_iter().flatten().collect();
    let healthy = all.iter().filter(|member| member["health"] == "Healthy").count();
    let mut found = match (all.len(), healthy) {
        (0, _) => vec![Finding::unseen(
            "no member has answered yet; this program did not look",
            "the manager, the control plane and the other machines of etcd have to reach port 2379 of etcd's machines, and these each other at 2380",
        )],
        (members, healthy) if members == healthy => {
            vec![Finding::ok(format!("2379: the manager reaches all {members} members, by their status"))]
        }
        (members, healthy) => vec![Finding::warning(
            format!("2379: {healthy} of {members} members answer the manager, by their status"),
            "kubectl etcdcluster why NAME has what the others said",
        )],
    };
    match &subject.dialed {
        _ if all.is_empty() => {}
        Some(dialed) => found.extend(of_dialed(dialed)),
        None => found.push(Finding::unseen(
            "2380, and the way from the control plane to 2379: this program did not look",
            "kubectl etcdcluster doctor NAME --dial asks both ports from this computer",
        )),
    }
    found
}

/// The results of the connections from this computer, by port.
fn of_dialed(dialed: &[Dialed]) -> Vec<Finding> {
    let mut by_port: BTreeMap<&str, Vec<&Dialed>> = BTreeMap::new();
    for one in dialed {
        by_port.entry(one.port()).or_default().push(one);
    }
    let mut found = Vec::new();
    for (port, all) in by_port {
        let closed = all.iter().filter_map(|one| {
            let why = one.answer.as_ref().err()?;
            Some(format!("{} ({}): {why}", one.member, one.address))
        });
        let closed: Vec<String> = closed.collect();
        found.push(if closed.is_empty() {
            Finding::ok(format!("{port}: this computer reaches all {} members", all.len()))
        } else {
            Finding::warning(
                format!("{port}: this computer does not reach {}", closed.join("; ")),
                "if this computer has to reach them, look at the firewall, and whether etcd runs",
            )
        });
        let without = all.iter().filter(|one| one.answer == Ok(None));
        found.extend(without.map(|one| {
            Finding::warning(
                format!("{} ({}) is open, and shows no certificate", one.member, one.address),
                "look at what listens there: etcd shows one",
            )
        }));
    }
    found.push(Finding::unseen(
        "the connections between the machines, and those from the manager and the control plane to them, cannot be checked from this computer",
        "",
    ));
    found
}
