//! DockerMachine of Cluster API's docker infrastructure. Releases up to 1.13 do not pass on to the Machine what etcd
//! needs.

use super::{Reference, addresses, flag, string};
use kube::ResourceExt;
use kube::api::DynamicObject;

/// What we need of a DockerMachine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerMachineView {
    /// Resource version that it was read at.
    pub resource_version: String,
    /// Its container has run the bootstrap data.
    pub bootstrapped: bool,
    /// `spec.providerID`. If it is set, the DockerMachine counts as provisioned.
    pub provider_id: Option<String>,
    /// Addresses as (type, address), in its own order. They exist after the bootstrap.
    pub addresses: Vec<(String, String)>,
}

impl DockerMachineView {
    /// Whether a reference is to a DockerMachine.
    #[must_use]
    pub fn is_named_by(reference: &Reference) -> bool {
        reference.kind == "DockerMachine" && reference.group == "infrastructure.cluster.x-k8s.io"
    }

    /// Reads a DockerMachine of any version.
    #[must_use]
    pub fn read(machine: &DynamicObject) -> Self {
        Self {
            resource_version: machine.resource_version().unwrap_or_default(),
            bootstrapped: flag(&machine.data, &["/spec/bootstrapped"]),
            provider_id: string(&machine.data, "/spec/providerID"),
            addresses: addresses(&machine.data),
        }
    }

    /// The provider ID that its provider would set if the Machine had a Node. It contains the container's name, which
    /// is among the addresses.
    #[must_use]
    pub fn own_provider_id(&self) -> Option<String> {
        let (_, container) = self.addresses.iter().find(|(type_, _)| type_ == "Hostname")?;
        Some(format!("docker:////{container}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_docker_machine_is_read_before_and_after_its_bootstrap() {
        let read = |value| DockerMachineView::read(&serde_json::from_value(value).unwrap());
        let fresh = read(json!({"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"customImage": "i"}}));
        assert_eq!((fresh.bootstrapped, &fresh.provider_id, fresh.own_provider_id()), (false, &None, None));
        assert_eq!(fresh.resource_version, "7");
        let booted = read(json!({
            "metadata": {"name": "a"}, "spec": {"bootstrapped": true},
            "status": {"addresses": [{"type": "Hostname", "address": "demo-a"}, {"type": "InternalIP", "address": "172.18.0.3"}]}
        }));
        assert!(booted.bootstrapped);
        assert_eq!(booted.own_provider_id().as_deref(), Some("docker:////demo-a"), "named after the container");
        assert_eq!(booted.addresses[1], ("InternalIP".to_owned(), "172.18.0.3".to_owned()));
    }

    #[test]
    fn only_the_docker_infrastructures_own_kind_is_one() {
        let named = |group: &str, kind: &str| {
            DockerMachineView::is_named_by(&Reference { group: group.into(), kind: kind.into(), name: "a".into() })
        };
        assert!(named("infrastructure.cluster.x-k8s.io", "DockerMachine"));
        assert!(!named("infrastructure.cluster.x-k8s.io", "DevMachine"));
        assert!(!named("infrastructure.example.org", "DockerMachine"));
    }
}
