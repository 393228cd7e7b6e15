//! The endpoints that further machines of a control plane would join with. kubeadm keeps its configuration in the
//! Kubernetes cluster.

use api::endpoints::{EndpointList, parse_list};
use api::names;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

/// The ConfigMap of kubeadm, in namespace `kube-system` of the Kubernetes cluster.
pub const KUBEADM_CONFIG: &str = "kubeadm-config";

/// The endpoints that further machines would join with, as the Kubernetes cluster has them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// They are not known, for this reason: everything stays in use.
    Unknown(String),
    /// This list. It is empty if kubeadm keeps no configuration there: no machine can join then.
    With(EndpointList),
    /// The configuration names no endpoint, or only the placeholder: a machine can join, but its API server finds no
    /// etcd. Everything stays in use until this is mended, because a person has to see it.
    WithNone,
}

/// Reads kubeadm's ConfigMap.
pub fn joining(map: &ConfigMap) -> Joining {
    match endpoints(map) {
        Some(list) if list.is_empty() => Joining::WithNone,
        Some(list) => Joining::With(list),
        None => Joining::Unknown(format!("ConfigMap kube-system/{KUBEADM_CONFIG} names no endpoints of etcd")),
    }
}

fn endpoints(map: &ConfigMap) -> Option<EndpointList> {
    let configuration: Value = serde_yaml::from_str(map.data.as_ref()?.get("ClusterConfiguration")?).ok()?;
    let external = configuration.pointer("/etcd/external")?.as_object()?;
    let endpoints = match external.get("endpoints") {
        // kubeadm's type writes `endpoints: null` for an empty list. Source: `ExternalEtcd` in
        // `cmd/kubeadm/app/apis/kubeadm/v1beta4/types.go` of Kubernetes, which has no `omitempty`.
        None | Some(Value::Null) => return Some(EndpointList::new()),
        Some(endpoints) => endpoints.as_array()?,
    };
    let texts: Option<Vec<&str>> = endpoints.iter().map(Value::as_str).collect();
    let mut list = parse_list(&texts?.join(","));
    list.remove(names::PLACEHOLDER_ENDPOINT);
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_kubeadm_writes_them_and_what_is_not_understood_is_not_known() {
        let map = |key: &str, text: &str| ConfigMap {
            data: Some([(key.to_owned(), text.to_owned())].into()),
            ..ConfigMap::default()
        };
        let read = |text: &str| joining(&map("ClusterConfiguration", text));
        let written = "apiVersion: kubeadm.k8s.io/v1beta4\netcd:\n  external:\n    caFile: /etc/kubernetes/pki/etcd/ca.crt\n    endpoints:\n    - https://10.0.0.1:2379\n    - https://10.0.0.2:2379\nkind: ClusterConfiguration\n";
        let two = parse_list("https://10.0.0.1:2379,https://10.0.0.2:2379");
        assert_eq!(read(written), Joining::With(two));
        let placeholder = format!("etcd: {{external: {{endpoints: [\"{}\"]}}}}", names::PLACEHOLDER_ENDPOINT);
        assert_eq!(read(&placeholder), Joining::WithNone);
        for none in ["{endpoints: []}", "{endpoints: null}", "{caFile: /etc/kubernetes/pki/etcd/ca.crt}"] {
            assert_eq!(read(&format!("etcd: {{external: {none}}}")), Joining::WithNone, "{none}");
        }
        let others = ["etcd: {external: {endpoints: [1]}}", "etcd: {external: {endpoints: x}}", "etcd: {external: x}"];
        for other in others.into_iter().chain(["etcd: {local: {dataDir: /var/lib/etcd}}", "- :", ""]) {
            assert!(matches!(read(other), Joining::Unknown(_)), "{other}");
        }
        assert!(matches!(joining(&map("ClusterStatus", written)), Joining::Unknown(_)));
        assert!(matches!(joining(&ConfigMap::default()), Joining::Unknown(_)));
    }
}
