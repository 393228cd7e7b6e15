//! Whether the preflight check of etcd is ignored. In it, kubeadm first asks each endpoint of etcd for its version, and
//! gives up if one is silent.

use super::{Finding, Installation, Subject, text};
use serde_json::Value;

const CHECK: &str = "ExternalEtcdVersion";

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let Ok(Some(control_plane)) = &subject.control_plane else { return Vec::new() };
    if text(control_plane, "/kind") != "KubeadmControlPlane" {
        return Vec::new();
    }
    let lacks = |part: &&str| {
        let pointer = format!("/spec/kubeadmConfigSpec/{part}/nodeRegistration/ignorePreflightErrors");
        let ignored = control_plane.pointer(&pointer).and_then(Value::as_array);
        let is_it =
            |found: &Value| found.as_str().is_some_and(|name| name.eq_ignore_ascii_case(CHECK) || name == "all");
        !ignored.into_iter().flatten().any(is_it)
    };
    let lacking: Vec<&str> = ["initConfiguration", "joinConfiguration"].into_iter().filter(lacks).collect();
    vec![match lacking.as_slice() {
        [] => Finding::ok(format!("{CHECK} is ignored")),
        lacking => Finding::warning(
            format!(
                "{CHECK} is not ignored in {} of the control plane: one silent member keeps a new node from starting",
                lacking.join(" and ")
            ),
            format!("add nodeRegistration: {{ignorePreflightErrors: [{CHECK}]}} there"),
        ),
    }]
}
