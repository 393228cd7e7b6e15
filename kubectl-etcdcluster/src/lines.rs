//! The lines of the manager's log about an EtcdCluster, and the consoles of its machines. Pure.

use crate::snapshot::Snapshot;
use kube::ResourceExt;

/// The lines about the EtcdCluster, its Cluster, or one of its Machines and their configs. Each line of a reconcile has
/// its object as `KIND.VERSION.GROUP/NAME.NAMESPACE`. Other lines may have it as `NAMESPACE/NAME`.
#[must_use]
pub fn of_cluster(log: &str, snapshot: &Snapshot) -> Vec<String> {
    let namespace = snapshot.etcd.namespace().unwrap_or_default();
    let cluster = snapshot.cluster.as_ref().map(|cluster| cluster.name.clone());
    let names = [snapshot.etcd.name_any()].into_iter().chain(cluster);
    let names: Vec<String> = names.chain(snapshot.machines.iter().map(|machine| machine.view.name.clone())).collect();
    let needles: Vec<String> =
        names.iter().flat_map(|name| [format!("/{name}.{namespace}"), format!("{namespace}/{name}")]).collect();
    let is_about = |line: &&str| needles.iter().any(|needle| has_word(line, needle));
    log.lines().filter(is_about).map(str::to_owned).collect()
}

/// Whether a text contains a name that is not the beginning of a longer one. A full stop after it may end a sentence.
fn has_word(text: &str, name: &str) -> bool {
    let goes_on = |rest: &str| {
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-')
    };
    text.match_indices(name).any(|(at, _)| !goes_on(&text[at + name.len()..]))
}

/// How to reach the consoles of the machines.
#[must_use]
pub fn consoles(snapshot: &Snapshot) -> Vec<String> {
    let namespace = snapshot.etcd.namespace().unwrap_or_default();
    let machines = snapshot.machines.iter().map(|machine| machine.view.name.as_str());
    match snapshot.etcd.spec.infrastructure_template.kind.as_str() {
        "LocalMachineTemplate" => machines
            .map(|name| format!("Console of {name}: local-infrastructure machine console {namespace}/{name}"))
            .collect(),
        "DockerMachineTemplate" | "DevMachineTemplate" => {
            let cluster = snapshot.cluster.as_ref().map(|cluster| cluster.name.clone()).unwrap_or_default();
            // Cluster API's docker provider prefixes other names with the name of the Cluster.
            let container = |name: &str| match name.starts_with(&cluster) {
                true => name.to_owned(),
                false => format!("{cluster}-{name}"),
            };
            machines
                .map(|name| format!("Console of {name}, where its container runs: docker logs {}", container(name)))
                .collect()
        }
        kind => vec![format!(
            "Consoles of the machines are with the infrastructure provider ({kind}): look at /var/log/cloud-init-output.log and journalctl -u etcd on each."
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn lines_of_this_cluster_alone_are_shown() {
        let snapshot = fixture::healthy();
        let of =
            |kind: &str, name: &str| format!(r#"{{"level":"INFO","span":{{"object":"{kind}.v1beta1.g.io/{name}"}}}}"#);
        let its = [
            of("EtcdCluster", "demo-etcd.default"),
            of("EtcdadmConfig", "demo-etcd-1.default"),
            of("Cluster", "demo.default"),
            "2026-11-23 INFO reconcile{object=EtcdCluster.v1beta1.g.io/demo-etcd.default reconcile_id=3}: x".to_owned(),
            "probing default/demo-etcd: x".to_owned(),
            "there is default/demo-etcd. It is left alone".to_owned(),
        ];
        let others = [
            of("EtcdCluster", "demo-etcd.default-2"),
            of("EtcdCluster", "demo-etcd-old.default"),
            of("EtcdadmConfig", "demo-etcd-11.default"),
            of("Cluster", "demo.other"),
            "probing default/demo-etcd-old: x".to_owned(),
            "probing default/demo-etcd.v2: x".to_owned(),
        ];
        let log = its.iter().chain(&others).cloned().collect::<Vec<_>>().join("\n");
        assert_eq!(of_cluster(&log, &snapshot), its);
    }

    #[test]
    fn every_infrastructure_has_an_answer() {
        let mut snapshot = fixture::healthy();
        assert_eq!(consoles(&snapshot).len(), 3, "a DevMachineTemplate");
        let mut of = |kind: &str| {
            snapshot.etcd.spec.infrastructure_template.kind = kind.to_owned();
            consoles(&snapshot)
        };
        assert!(of("LocalMachineTemplate")[1].ends_with("machine console default/demo-etcd-1"));
        assert!(of("Metal3MachineTemplate")[0].contains("Metal3MachineTemplate"));
    }
}
