//! Machines whose deletion waits for etcd's controller.

use api::names;
use kube::ResourceExt;

/// A Machine that carries the pre-terminate hook of etcd's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookedMachine {
    /// Name.
    pub name: String,
    /// UID: another Machine may get the name.
    pub uid: String,
}

/// Those of the Machines that carry the pre-terminate hook.
pub fn hooked(machines: &[impl ResourceExt]) -> Vec<HookedMachine> {
    let carries = |machine: &&_| ResourceExt::annotations(*machine).contains_key(names::PRE_TERMINATE_HOOK_ANNOTATION);
    let read = |machine: &_| HookedMachine {
        name: ResourceExt::name_any(machine),
        uid: ResourceExt::uid(machine).unwrap_or_default(),
    };
    machines.iter().filter(carries).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::DynamicObject;
    use serde_json::json;

    #[test]
    fn only_our_hook_counts() {
        let machine = |name: &str, annotation: &str| -> DynamicObject {
            let metadata = json!({"name": name, "uid": "u", "annotations": {annotation: "etcd-cluster-controller"}});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let kubeadm = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/kcp-cleanup";
        let machines = [machine("a", names::PRE_TERMINATE_HOOK_ANNOTATION), machine("b", kubeadm)];
        assert_eq!(hooked(&machines), [HookedMachine { name: "a".to_owned(), uid: "u".to_owned() }]);
    }
}
