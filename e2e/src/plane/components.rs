//! The command line of each process of the plane.

use std::path::Path;

use anyhow::Result;

use super::pki::Pki;
use super::ports::{self, Ports};
use super::users::{self, Users};
use crate::process::Command;
use crate::world::{self, World};

/// One of Cluster API's managers.
pub(super) struct Manager {
    /// Its user, and the name of its process and log.
    pub user: &'static str,
    /// The file with its CRDs and webhooks.
    pub manifests: &'static str,
    /// Namespace that it would run in.
    namespace: &'static str,
    /// Its number, which determines its ports.
    pub number: u16,
}

/// Cluster API's managers. The core one is last: the plane checks one of its webhooks to see that all webhooks are
/// called.
pub(super) const MANAGERS: [Manager; 3] = [
    Manager {
        user: users::CAPI_BOOTSTRAP,
        manifests: "bootstrap.json",
        namespace: "capi-kubeadm-bootstrap-system",
        number: 1,
    },
    Manager {
        user: users::CAPI_CONTROL_PLANE,
        manifests: "control-plane.json",
        namespace: "capi-kubeadm-control-plane-system",
        number: 2,
    },
    Manager { user: users::CAPI_CORE, manifests: "core.json", namespace: "capi-system", number: 0 },
];

pub(super) fn etcd(world: &World, data: &Path, ports: Ports) -> Command {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    Command::new("etcd", &world.tools().etcd, world.logs())
        .arg("--name=plane")
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=plane={peer}"))
        // This member is alone, so it need not wait long for others before it elects itself.
        .args(["--heartbeat-interval=20", "--election-timeout=200"])
        // Its data is in memory and lasts as long as the world: there is no disk to wait for.
        .arg("--unsafe-no-fsync")
}

pub(super) fn apiserver(
    (world, ports): (&World, Ports),
    pki: &Pki,
    users: &Users,
    audit_policy: &Path,
    audit_log: &Path,
) -> Command {
    Command::new("kube-apiserver", &world.tools().kube_apiserver, world.logs())
        .arg(format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd))
        .arg("--bind-address=127.0.0.1")
        // By default the address of the default route, which a world does not have.
        .arg(format!("--advertise-address={}", world::ADDRESS))
        .arg("--endpoint-reconciler-type=none")
        .arg(format!("--secure-port={}", ports.apiserver))
        .arg(format!("--tls-cert-file={}", pki.server_certificate.display()))
        .arg(format!("--tls-private-key-file={}", pki.server_key.display()))
        .arg(format!("--client-ca-file={}", pki.authority_file.display()))
        .arg(format!("--token-auth-file={}", users.token_file.display()))
        .arg("--authorization-mode=RBAC")
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", pki.service_account_public.display()))
        .arg(format!("--service-account-signing-key-file={}", pki.service_account_private.display()))
        .arg("--service-cluster-ip-range=10.96.0.0/16")
        // No service accounts are made here, because the controller for them does not run.
        .arg("--disable-admission-plugins=ServiceAccount")
        // As strict as some distributions are, so that scenario `rbac` sees what that requires.
        .arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
        .arg(format!("--audit-policy-file={}", audit_policy.display()))
        .arg(format!("--audit-log-path={}", audit_log.display()))
        // Keeps everything in one file, because requests are counted in it.
        .arg("--audit-log-maxsize=100000")
}

pub(super) fn controller_manager((world, ports): (&World, Ports), pki: &Pki, users: &Users) -> Result<Command> {
    let kubeconfig = users.kubeconfig(users::CONTROLLER_MANAGER)?.display();
    Ok(Command::new("kube-controller-manager", &world.tools().kube_controller_manager, world.logs())
        .arg(format!("--kubeconfig={kubeconfig}"))
        .arg(format!("--authentication-kubeconfig={kubeconfig}"))
        .arg(format!("--authorization-kubeconfig={kubeconfig}"))
        .arg("--controllers=garbage-collector-controller,namespace-controller,clusterrole-aggregation-controller")
        .arg("--leader-elect=false")
        .arg("--kube-api-qps=1000")
        .arg("--kube-api-burst=2000")
        .arg("--bind-address=127.0.0.1")
        .arg(format!("--secure-port={}", ports.controller_manager))
        .arg(format!("--tls-cert-file={}", pki.server_certificate.display()))
        .arg(format!("--tls-private-key-file={}", pki.server_key.display())))
}

/// A Cluster API manager with upstream's feature gates, which are its own defaults.
pub(super) fn manager(
    (world, ports): (&World, Ports),
    manager: &Manager,
    users: &Users,
    certificates: &Path,
) -> Result<Command> {
    let kubeconfig = users.kubeconfig(manager.user)?;
    Ok(manager_of(world, manager, manager.user, kubeconfig, &ports.manager(manager.number), certificates))
}

/// The same for the API server that the kubeconfig leads to, with another name for the process and other ports.
pub(super) fn manager_of(
    world: &World,
    manager: &Manager,
    name: &str,
    kubeconfig: &Path,
    ports: &ports::Manager,
    certificates: &Path,
) -> Command {
    let tools = world.tools();
    let program = match manager.user {
        users::CAPI_BOOTSTRAP => &tools.cluster_api.bootstrap,
        users::CAPI_CONTROL_PLANE => &tools.cluster_api.control_plane,
        _ => &tools.cluster_api.core,
    };
    capi_manager(Command::new(name, program, world.logs()), kubeconfig, ports, certificates)
        .env("POD_NAMESPACE", manager.namespace)
        .env("POD_NAME", manager.user)
        .env("POD_UID", manager.user)
}

/// The flags that all managers of Cluster API share.
pub(super) fn capi_manager(
    command: Command,
    kubeconfig: &Path,
    ports: &ports::Manager,
    certificates: &Path,
) -> Command {
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--webhook-port={}", ports.webhook))
        .arg(format!("--webhook-cert-dir={}", certificates.display()))
        .arg(format!("--health-addr=127.0.0.1:{}", ports.health))
        .arg(format!("--diagnostics-address=127.0.0.1:{}", ports.diagnostics))
        .arg("--insecure-diagnostics=true")
        .arg("--kube-api-qps=1000")
        .arg("--kube-api-burst=2000")
}
