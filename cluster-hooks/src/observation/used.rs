//! Which endpoints the machines of a control plane were started with.

use api::endpoints::{EndpointList, EndpointLists, parse_list};
use api::names;
use controller_support::external::Reference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

/// Endpoints that the machines of a control plane were started with, as the API server has it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Used {
    /// They are not known: everything stays in use.
    Unknown,
    /// There is no machine. If counts say otherwise, they are outdated, and so is everything derived from them.
    NoMachine,
    /// Those of the present spec. The control plane counts every machine as up to date, and there is no other source.
    OfSpec,
    /// These lists, by the configurations of its machines.
    These(EndpointLists),
}

/// On a Machine that Cluster API is updating in place. Its KubeadmConfig is written before the machine is changed.
/// Source: `UpdateInProgressAnnotation` in `api/core/v1beta2/machine_types.go` of Cluster API 1.12 to 1.14.
const UPDATE_IN_PROGRESS: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";

/// Reads the KubeadmConfigs that the machines of a KubeadmControlPlane were made from. Each of them names the
/// endpoints, also for a machine that joins. A machine whose KubeadmConfig is missing may use any endpoints, and so may
/// one that is being updated in place.
pub fn configured(machines: &[DynamicObject], configs: &[DynamicObject]) -> Used {
    if machines.is_empty() {
        return Used::NoMachine;
    }
    let of = |machine: &DynamicObject| {
        if machine.annotations().contains_key(UPDATE_IN_PROGRESS) {
            return None;
        }
        let reference = Reference::read(machine.data.pointer("/spec/bootstrap/configRef"))?;
        let config = configs.iter().find(|config| config.name_any() == reference.name)?;
        let endpoints = config.data.pointer("/spec/clusterConfiguration/etcd/external/endpoints")?.as_array()?;
        let texts: Option<Vec<&str>> = endpoints.iter().map(Value::as_str).collect();
        let mut list = parse_list(&texts?.join(","));
        list.remove(names::PLACEHOLDER_ENDPOINT);
        Some(list)
    };
    let all: Option<Vec<EndpointList>> = machines.iter().map(of).collect();
    all.map_or(Used::Unknown, |all| Used::These(all.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_machine_counts_and_one_that_is_not_known_makes_all_unknown() {
        let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
        let machine = |name: &str, config: &str| {
            let reference = json!({"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfig", "name": config});
            object(json!({"metadata": {"name": name}, "spec": {"bootstrap": {"configRef": reference}}}))
        };
        let config = |name: &str, endpoints: Value| {
            let external = json!({"etcd": {"external": {"endpoints": endpoints}}});
            object(json!({"metadata": {"name": name}, "spec": {"clusterConfiguration": external}}))
        };
        let configs = [
            config("a", json!(["https://10.0.0.1:2379"])),
            config("b", json!(["https://10.0.0.2:2379,https://10.0.0.3:2379", names::PLACEHOLDER_ENDPOINT])),
            object(json!({"metadata": {"name": "c"}, "spec": {}})),
        ];
        let used = |machines: &[DynamicObject]| configured(machines, &configs);
        let urls = |hosts: &[u8]| hosts.iter().map(|host| format!("https://10.0.0.{host}:2379")).collect();
        let lists = |lists: &[&[u8]]| Used::These(lists.iter().map(|hosts| urls(hosts)).collect());
        assert_eq!(used(&[machine("m", "a")]), lists(&[&[1]]));
        assert_eq!(used(&[machine("m", "a"), machine("n", "b"), machine("o", "a")]), lists(&[&[1], &[2, 3]]));
        assert_eq!(used(&[machine("m", "a"), machine("n", "missing")]), Used::Unknown);
        assert_eq!(used(&[machine("m", "a"), machine("n", "c")]), Used::Unknown);
        let mut updated = machine("p", "a");
        updated.annotations_mut().insert(UPDATE_IN_PROGRESS.to_owned(), String::new());
        assert_eq!(used(&[machine("m", "a"), updated]), Used::Unknown);
        assert_eq!(used(&[]), Used::NoMachine);
    }
}
