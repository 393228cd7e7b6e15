//! The CA and the certificates derived from it. Members trust the CA that they were made with, so the CA is never
//! replaced once there is a Machine or etcd has begun.

use super::{Plan, Step, View, block, wait};
use crate::observation::Certificates;
use api::conditions::reasons;
use api::names;
use kube::ResourceExt;

pub(super) fn plan(view: &View<'_>) -> Option<Plan> {
    let cluster = &view.cluster()?.name;
    let secret = names::ca_secret(cluster);
    let in_use = view.has_begun() || !view.observation.machines.is_empty();
    match &view.observation.certificates {
        Certificates::Unknown => {
            let etcd = &view.observation.etcd;
            let message = format!(
                "Secret {secret} in namespace {}, with etcd's CA, has not been read. It is read when a Cluster names EtcdCluster {}, and is not read while the EtcdCluster is being deleted",
                etcd.namespace().unwrap_or_default(),
                etcd.name_any()
            );
            Some(wait(reasons::WAITING_FOR_CERTIFICATES, message))
        }
        Certificates::OfAnother { kind, name } if kind == "EtcdCluster" => Some(wait(
            reasons::WAITING_FOR_CERTIFICATES,
            format!("Secret {secret} still belongs to EtcdCluster {name} and goes with that; then a new one is made"),
        )),
        Certificates::OfAnother { kind, name } => Some(block(
            reasons::NAME_TAKEN,
            format!(
                "Secret {secret} belongs to {kind} {name}, is deleted with that, and a CA serves one etcd cluster: rename one of the Clusters, or correct the owner of the Secret"
            ),
        )),
        Certificates::Invalid(message) => Some(block(reasons::SECRET_INVALID, format!("Secret {secret}: {message}"))),
        Certificates::NotLabelled => Some(Plan::Do(Step::LabelCa)),
        Certificates::NoCa if in_use => Some(block(
            reasons::SECRET_INVALID,
            format!(
                "Secret {secret} in namespace {}, with the CA of the running members, is gone; restore it from a backup (a new CA would shut them out). No member is added or removed until then",
                view.observation.etcd.namespace().unwrap_or_default()
            ),
        )),
        Certificates::Replaced if in_use => Some(block(
            reasons::SECRET_INVALID,
            format!(
                "Secret {secret} does not hold the CA that the members were made with (the certificates in Secrets {} and {} belong to that CA); restore Secret {secret} from a backup",
                names::staged_apiserver_client_secret(cluster),
                names::control_plane_ca_secret(cluster)
            ),
        )),
        Certificates::Ca { control_plane_ca: true, staged_client: true, .. } => None,
        Certificates::NoCa | Certificates::Replaced | Certificates::Ca { .. } => {
            Some(Plan::Do(Step::EnsureCertificates))
        }
    }
}
