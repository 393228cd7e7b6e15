//! A snapshot as a tree of lines. Pure.

use super::snapshot::Snapshot;
use api::conditions::READY;
use api::etcd_cluster::{MemberRole, MemberStatus};
use std::time::Duration;

/// Draws the tree.
#[must_use]
pub fn lines(seen: &Snapshot, elapsed: Duration) -> Vec<String> {
    let mut lines = vec![format!("Cluster {}  {:.1} s", seen.cluster, elapsed.as_secs_f32())];
    if let Some((status, reason, _)) = &seen.cluster_condition {
        lines.push(format!("│   {} etcd: {reason}", mark(status == "True")));
    }
    let (etcd, wanted, status) = &seen.etcd;
    let ready = status.conditions.iter().find(|condition| condition.type_ == READY);
    let says = ready.map_or_else(String::new, |condition| match condition.message.as_str() {
        "" => condition.reason.clone(),
        message => format!("{}: {message}", condition.reason),
    });
    lines.push(format!(
        "├── {} EtcdCluster {etcd}  {}/{wanted} healthy  {says}",
        mark(status.ready),
        status.ready_replicas
    ));
    let last = seen.machines.len().saturating_sub(1);
    for (index, (name, phase, address)) in seen.machines.iter().enumerate() {
        let branch = if index == last { "└──" } else { "├──" };
        let member = status.members.iter().find(|member| &member.machine == name);
        let healthy = member.is_some_and(|member| member.healthy_since.is_some());
        lines.push(format!("│   {branch} {} Machine {name}  {phase}  {address}  {}", mark(healthy), describe(member)));
    }
    let state = if seen.paused { "paused until etcd is ready" } else { "unpaused" };
    lines.push(format!("└── {} KubeadmControlPlane {}  {state}", mark(!seen.paused), seen.control_plane));
    if !seen.endpoints.is_empty() {
        lines.push(format!("    ├── endpoints {}", seen.endpoints.join(", ")));
    }
    for (name, has_data) in &seen.control_plane_machines {
        let data = if *has_data { "has its bootstrap data" } else { "waits for its bootstrap data" };
        lines.push(format!("    └── {} Machine {name}  {data}", mark(*has_data)));
    }
    for (name, ready) in &seen.nodes {
        lines.push(format!(
            "    └── {} Node of Machine {name}  {}",
            mark(*ready),
            if *ready { "Ready" } else { "not Ready yet" }
        ));
    }
    lines
}

fn mark(good: bool) -> char {
    if good { '✓' } else { '…' }
}

fn describe(member: Option<&MemberStatus>) -> String {
    let Some(member) = member else { return "no member yet".to_owned() };
    let role = match (member.role, member.leader) {
        (MemberRole::Learner, _) => "learner",
        (MemberRole::Voter, true) => "voter, leads",
        (MemberRole::Voter, false) => "voter",
    };
    let health = if member.healthy_since.is_some() { "healthy" } else { "not healthy yet" };
    let version = if member.version.is_empty() { String::new() } else { format!(", etcd {}", member.version) };
    format!("{role}, {health}{version}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::EtcdClusterStatus;
    use serde_json::json;

    #[test]
    fn a_cluster_on_its_way() {
        let status: EtcdClusterStatus = serde_json::from_value(json!({
            "readyReplicas": 1,
            "members": [
                {"name": "demo-etcd-0", "id": "a", "machine": "demo-etcd-0", "role": "Voter", "leader": true,
                 "version": "3.6.16", "healthySince": "2026-01-01T00:00:00Z"},
                {"name": "", "id": "b", "machine": "demo-etcd-1", "role": "Learner"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "WaitingForPromotion",
                "message": "member demo-etcd-1 is a learner", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
        }))
        .unwrap();
        let machine = |index: u8| (format!("demo-etcd-{index}"), "Provisioned".to_owned(), format!("10.77.0.{index}"));
        let seen = Snapshot {
            cluster: "demo".to_owned(),
            cluster_condition: Some(("False".to_owned(), "WaitingForEtcd".to_owned(), String::new())),
            etcd: ("demo-etcd".to_owned(), 3, status),
            machines: vec![machine(0), machine(1)],
            control_plane: "demo-control-plane".to_owned(),
            paused: true,
            endpoints: vec!["https://placeholder.invalid:2379".to_owned()],
            control_plane_machines: Vec::new(),
            nodes: Vec::new(),
        };
        let expected = "\
Cluster demo  4.2 s
│   … etcd: WaitingForEtcd
├── … EtcdCluster demo-etcd  1/3 healthy  WaitingForPromotion: member demo-etcd-1 is a learner
│   ├── ✓ Machine demo-etcd-0  Provisioned  10.77.0.0  voter, leads, healthy, etcd 3.6.16
│   └── … Machine demo-etcd-1  Provisioned  10.77.0.1  learner, not healthy yet
└── … KubeadmControlPlane demo-control-plane  paused until etcd is ready
    ├── endpoints https://placeholder.invalid:2379";
        assert_eq!(lines(&seen, Duration::from_millis(4_200)).join("\n"), expected);
    }
}
