//! A snapshot as a tree of lines. This is a pure function.

use super::snapshot::Snapshot;
use kubectl_etcdcluster::text::Times;
use kubectl_etcdcluster::tree;
use std::time::Duration;

/// Draws the tree. Its part about etcd is the kubectl plugin's. `is_watched`: the output is a terminal, so ages may
/// count up.
#[must_use]
pub fn lines(seen: &Snapshot, elapsed: Duration, is_watched: bool) -> Vec<String> {
    let mut lines = vec![format!("Cluster {}  {:.1} s", seen.cluster, elapsed.as_secs_f32())];
    if let Some((status, reason, _)) = &seen.cluster_condition {
        lines.push(format!("│   {} etcd: {reason}", mark(status == "True")));
    }
    let times = if is_watched { Times::Ages(seen.now) } else { Times::Points };
    for (index, line) in tree::lines(&seen.etcd, times).into_iter().enumerate() {
        let branch = if index == 0 { "├──" } else { "│  " };
        lines.push(format!("{branch} {line}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use kubectl_etcdcluster::report::Report;
    use kubectl_etcdcluster::snapshot::Objects;
    use serde_json::{Value, from_value, json};

    fn machine(index: u8) -> Value {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
            "metadata": {"name": format!("demo-etcd-{index}"), "namespace": "default",
                "labels": {api::names::ETCD_CLUSTER_LABEL: "demo-etcd"}},
            "status": {"phase": "Provisioned", "addresses":
                [{"type": "InternalIP", "address": format!("10.77.0.{index}")}],
                "conditions": [{"type": "UpToDate", "status": "True"}]}
        })
    }

    #[test]
    fn a_cluster_on_its_way() {
        let etcd: api::EtcdCluster = from_value(json!({
            "apiVersion": "etcdcluster.cluster.x-k8s.io/v1beta1", "kind": "EtcdCluster",
            "metadata": {"name": "demo-etcd", "namespace": "default", "generation": 1},
            "spec": {"replicas": 3, "infrastructureTemplate":
                {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": "demo-etcd"}},
            "status": {"initialized": true, "readyReplicas": 1, "updatedReplicas": 2, "version": "3.6.16",
                "observedGeneration": 1,
                "members": [
                    {"name": "demo-etcd-0", "id": "a", "machine": "demo-etcd-0", "role": "Voter", "leader": true,
                     "version": "3.6.16", "health": "Healthy", "healthySince": "2026-01-01T00:00:00Z"},
                    {"name": "", "id": "b", "machine": "demo-etcd-1", "role": "Learner"}],
                "conditions": [{"type": "Ready", "status": "False", "reason": "WaitingForPromotion",
                    "message": "member demo-etcd-1 is a learner", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        }))
        .unwrap();
        let status = etcd.status.clone().unwrap();
        let machines = [0, 1].map(|index| from_value(machine(index)).unwrap()).to_vec();
        let objects = Objects { etcds: vec![etcd], machines, ..Objects::default() };
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        let seen = Snapshot {
            cluster: "demo".to_owned(),
            cluster_condition: Some(("False".to_owned(), "WaitingForEtcd".to_owned(), String::new())),
            now,
            etcd: Report::new(&objects.snapshots(now).pop().unwrap()),
            status,
            control_plane: "demo-control-plane".to_owned(),
            paused: true,
            endpoints: vec!["https://placeholder.invalid:2379".to_owned()],
            control_plane_machines: Vec::new(),
            nodes: Vec::new(),
        };
        let expected = "\
Cluster demo  4.2 s
│   … etcd: WaitingForEtcd
├── … EtcdCluster default/demo-etcd  NotReady
│   │   1/3 healthy, 2 Machines, 2 up to date, etcd 3.6.16
│   │     MACHINE      MEMBER        HEALTH          ETCD    ADDRESS    UP TO DATE
│   ├── ✓ demo-etcd-0  voter, leads  healthy for 5s  3.6.16  10.77.0.0  yes
│   └── … demo-etcd-1  learner       unknown                 10.77.0.1  yes
│   Waits: WaitingForPromotion (Ready is False for 5s): member demo-etcd-1 is a learner
└── … KubeadmControlPlane demo-control-plane  paused until etcd is ready
    ├── endpoints https://placeholder.invalid:2379";
        assert_eq!(lines(&seen, Duration::from_millis(4_200), true).join("\n"), expected);
    }
}
