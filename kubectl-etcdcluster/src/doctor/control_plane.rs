//! The etcd settings of the control plane.

use super::{Finding, Installation, Subject, text};
use api::names::PLACEHOLDER_ENDPOINT;
use serde_json::Value;

const EXTERNAL: &str = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external";

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let control_plane = match &subject.control_plane {
        Err(why) => return super::unread("the control plane", why),
        Ok(None) => {
            return vec![Finding::unseen(
                "the Cluster names no control plane that is there",
                "with a ClusterClass, Cluster API makes it: look again when it has",
            )];
        }
        Ok(Some(control_plane)) => control_plane,
    };
    let (kind, name) = (text(control_plane, "/kind"), text(control_plane, "/metadata/name"));
    if kind != "KubeadmControlPlane" {
        return vec![Finding::unseen(format!("{kind} {name}: this program knows KubeadmControlPlanes only"), "")];
    }
    let Some(external) = control_plane.pointer(EXTERNAL) else {
        return vec![Finding::fault(
            format!("{kind} {name} is made for local etcd"),
            format!(
                "make it with spec.kubeadmConfigSpec.clusterConfiguration.etcd.external: {{endpoints: [{PLACEHOLDER_ENDPOINT}], caFile, certFile, keyFile}}; an existing one cannot be changed"
            ),
        )];
    };
    let mut found = vec![endpoints(subject, external)];
    for field in ["caFile", "certFile", "keyFile"] {
        if !external[field].as_str().is_some_and(|path| path.starts_with('/')) {
            found.push(Finding::fault(
                format!("etcd.external.{field} is not an absolute path"),
                "usual are /etc/kubernetes/pki/etcd/ca.crt, /etc/kubernetes/pki/apiserver-etcd-client.crt and /etc/kubernetes/pki/apiserver-etcd-client.key",
            ));
        }
    }
    found
}

fn endpoints(subject: &Subject, external: &Value) -> Finding {
    let listed: Vec<&str> = external["endpoints"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let live = subject.live.as_ref();
    let published = live.map(|live| text(live, "/status/endpoints")).unwrap_or_default();
    let is_ready = live.and_then(|live| live.pointer("/status/ready")?.as_bool()).unwrap_or_default();
    match (listed.as_slice(), is_ready) {
        ([PLACEHOLDER_ENDPOINT], false) => Finding::ok("its endpoint is the placeholder, until etcd is Ready"),
        ([PLACEHOLDER_ENDPOINT], true) => Finding::warning(
            "etcd is Ready, and the endpoint is still the placeholder",
            "if this is a file, nothing: the placeholder belongs there. Otherwise look at ManagedExternalEtcdReady of the Cluster",
        ),
        ([], _) => Finding::fault("it has no endpoints", format!("write {PLACEHOLDER_ENDPOINT} in their place")),
        (listed, _) if listed.join(",") == published => Finding::ok("its endpoints are the published ones"),
        (listed, _) => Finding::warning(
            format!(
                "its endpoints are {}, and etcd has published {}",
                listed.join(", "),
                if published.is_empty() { "none" } else { published }
            ),
            format!(
                "in a file, write {PLACEHOLDER_ENDPOINT}: the provider replaces it. In a cluster, wait for a rollout that goes on, or look at ManagedExternalEtcdReady"
            ),
        ),
    }
}
