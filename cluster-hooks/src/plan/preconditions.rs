//! What kubeadm requires of a control plane before its first machine, and of machines that join it: an external etcd
//! that it can reach, certificates that its machines can share, and a stable endpoint. If something is known to fail,
//! the hook holds the control plane back: it can be corrected now, whereas on a machine it would fail for good.
//!
//! All of this is behaviour of KubeadmControlPlane. Nothing is required of other kinds of control planes.

use super::{Plan, Step, UNWATCHED_SECRETS, block, wait};
use crate::observation::{ControlPlaneView, EtcdView, Kubeadm, Need, Observation, Secrets, Shared};
use api::conditions::reasons;
use api::names;

const FILES: [&str; 3] = ["caFile", "certFile", "keyFile"];

/// What the user has to correct, as soon as it is known.
pub(super) fn of_user(observation: &Observation) -> Option<Plan> {
    let control_plane = observation.found_control_plane()?;
    let kubeadm = control_plane.kubeadm.as_ref()?;
    if let Some((field, problem)) = file_problem(kubeadm) {
        let message = format!(
            "{}: {}.{field} {problem}; usual are /etc/kubernetes/pki/etcd/ca.crt, \
             /etc/kubernetes/pki/apiserver-etcd-client.crt and /etc/kubernetes/pki/apiserver-etcd-client.key",
            control_plane.reference,
            control_plane.adapter.field()
        );
        return Some(block(reasons::CONTROL_PLANE_INVALID, message));
    }
    let cluster = &observation.cluster;
    (cluster.view.infrastructure_ready && !cluster.endpoint).then(|| {
        let message = "the Cluster has no spec.controlPlaneEndpoint, and its infrastructure is provisioned without having set \
                       one: set host and port of the API servers' load balancer or virtual address there";
        block(reasons::WAITING_FOR_CONTROL_PLANE_ENDPOINT, message)
    })
}

/// What is wrong with the three paths, and with which of them. Cluster API puts the certificates there, and kubeadm
/// mounts their folders for API servers.
fn file_problem(kubeadm: &Kubeadm) -> Option<(&'static str, String)> {
    let Kubeadm { files, certificates, mounts, .. } = kubeadm;
    let within = |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    let shared = ["ca.crt", "ca.key", "sa.pub", "sa.key", "front-proxy-ca.crt", "front-proxy-ca.key"]
        .map(|file| format!("{certificates}/{file}"));
    for (index, (field, path)) in FILES.into_iter().zip(files).enumerate() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let problem = if !path.starts_with('/') {
            "must be an absolute path".to_owned()
        } else if folder.is_empty() {
            "must be in a folder: API servers are given that folder, and cannot be given /".to_owned()
        } else if let Some(earlier) = files[..index].iter().position(|other| other == path) {
            format!("must differ from {}: one file would replace the other", FILES[earlier])
        } else if shared.contains(path) {
            format!("must not be {path}: that is the place of a certificate or key of the Cluster itself")
        } else if path.starts_with(certificates.as_str())
            && !within(path, certificates)
            && !mounts.iter().any(|mount| within(path, mount.trim_end_matches('/')))
        {
            // kubeadm compares only the beginning of the names, and assumes that API servers see the folder already.
            format!(
                "is in {folder}, which API servers do not see: kubeadm takes the folder for mounted, because its name \
                 begins with {certificates}"
            )
        } else {
            continue;
        };
        return Some((field, problem));
    }
    None
}

/// Checks for endpoints that kubeadm would refuse. The hook never writes such endpoints.
pub(super) fn of_endpoints(etcd: &EtcdView, endpoints: &[String], control_plane: &ControlPlaneView) -> Option<Plan> {
    control_plane.kubeadm.as_ref()?;
    let bad = endpoints.iter().find(|url| !is_https(url))?;
    let message = format!(
        "{} has endpoint {bad:?} in its status, which kubeadm refuses: its provider has to publish \
         https://<address>:<port>",
        etcd.reference
    );
    Some(block(reasons::ETCD_ENDPOINTS_INVALID, message))
}

fn is_https(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.eq_ignore_ascii_case("https") && !rest.is_empty() && !rest.contains(char::is_whitespace)
    })
}

/// What is known only right before the control plane is released.
pub(super) fn of_release(observation: &Observation, control_plane: &ControlPlaneView) -> Option<Plan> {
    control_plane.kubeadm.as_ref()?;
    if !observation.cluster.endpoint {
        let message = "the Cluster has no spec.controlPlaneEndpoint yet; its infrastructure, which is not provisioned yet, may \
                       set one";
        return Some(wait(reasons::WAITING_FOR_CONTROL_PLANE_ENDPOINT, message));
    }
    let Some(shared) = &observation.reads.shared else { return Some(Plan::Do(Step::Read(Need::SharedCertificates))) };
    let message = certificate_problem(&observation.cluster.view.name, &observation.secrets, shared)?;
    Some(block(reasons::SHARED_CERTIFICATES_INVALID, message).again(UNWATCHED_SECRETS))
}

fn certificate_problem(cluster: &str, secrets: &Secrets, shared: &[Shared]) -> Option<String> {
    if secrets.ca_key {
        let name = names::control_plane_ca_secret(cluster);
        return Some(format!(
            "Secret {name} has a tls.key, for which control-plane machines have no place: etcd's provider must remove it"
        ));
    }
    shared.iter().find_map(|Shared { name, certificate, key }| {
        if !certificate {
            return Some(format!(
                "Secret {name} has no tls.crt: add it, or delete the Secret to have Cluster API make one"
            ));
        }
        // Every machine except the first joins, and needs all keys. This includes the replacement of a single machine.
        (!key).then(|| {
            format!(
                "Secret {name} has no tls.key: only the first control-plane machine can be made without it, and every \
                 change of etcd's endpoints needs another machine. Add the key, or delete the Secret to have Cluster \
                 API make one"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: [&str; 3] = [
        "/etc/kubernetes/pki/etcd/ca.crt",
        "/etc/kubernetes/pki/apiserver-etcd-client.crt",
        "/etc/kubernetes/pki/apiserver-etcd-client.key",
    ];

    fn problem(files: [&str; 3], mounts: &[&str]) -> Option<(&'static str, String)> {
        let kubeadm = Kubeadm {
            min_healthy_seconds: 3600,
            replicas: 3,
            files: files.map(str::to_owned),
            certificates: "/etc/kubernetes/pki".to_owned(),
            mounts: mounts.iter().map(|mount| (*mount).to_owned()).collect(),
        };
        file_problem(&kubeadm)
    }

    #[test]
    fn every_path_that_kubeadm_and_api_servers_can_use_is_taken() {
        assert_eq!(problem(USUAL, &[]), None);
        for folder in ["/etc/etcd", "/opt/a/b", "/etc/ssl/certs", "/var/lib/etcd-pki", "/etc/kubernetes"] {
            let files = ["ca.crt", "client.crt", "client.key"].map(|file| format!("{folder}/{file}"));
            assert_eq!(problem(files.each_ref().map(String::as_str), &[]), None, "{folder}");
        }
        let beside = ["/etc/kubernetes/pki-etcd/ca.crt", USUAL[1], USUAL[2]];
        assert_eq!(problem(beside, &["/etc/kubernetes/pki-etcd"]), None, "the user has mounted it");
    }

    #[test]
    fn the_field_that_cannot_work_is_named() {
        for (index, path, expected) in [
            (0, "", "absolute"),
            (0, "etcd/ca.crt", "absolute"),
            (1, "/client.crt", "folder"),
            (1, USUAL[0], "caFile"),
            (2, USUAL[1], "certFile"),
            (0, "/etc/kubernetes/pki/ca.crt", "the Cluster itself"),
            (2, "/etc/kubernetes/pki/sa.key", "the Cluster itself"),
            (0, "/etc/kubernetes/pki-etcd/ca.crt", "do not see"),
        ] {
            let mut files = USUAL;
            files[index] = path;
            let (field, message) = problem(files, &["/etc/other"]).unwrap();
            assert_eq!(field, FILES[index], "{path}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn endpoints_are_urls_with_https() {
        for good in ["https://10.0.0.1:2379", "https://[fd00::1]:2379", "https://etcd.example.org", "HTTPS://10.0.0.1"]
        {
            assert!(is_https(good), "{good}");
        }
        for bad in ["http://10.0.0.1:2379", "10.0.0.1:2379", "https://", "", "https://a b"] {
            assert!(!is_https(bad), "{bad}");
        }
    }
}
