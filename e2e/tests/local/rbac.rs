//! The manager as `config/default`, `config/namespaced` and `config/watch-filter` install it: with that command line,
//! that service account and no other permission.

mod life;

use anyhow::{Context, Result, ensure};
use api::names::{ETCD_CLUSTER_LABEL, WATCH_FILTER_LABEL, init_lock};
use e2e::apply::documents;
use e2e::bed::{Bed, ClusterHandle, Manifests, get, get_from, metrics, programs, reader};
use e2e::plane::Requests;
use e2e::process::{Command, Process, output};
use e2e::scenarios::is_full;
use e2e::until::until;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
/// Where a Pod finds its service account. Each world has its own `/run`.
const MOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// Ports in place of those that the manager has in a Pod: here a manager of Cluster API uses the same ones.
const HEALTH_PORT: u16 = 9710;
const METRICS_PORT: u16 = 9711;

/// A verb, and resources.
type Excuse = (&'static str, &'static [&'static str]);

/// Permissions that nothing here uses, and why they are needed all the same.
const UNUSED: &[Excuse] = &[
    // Admission checks this permission; we send no such request.
    ("update", &["etcdclusters/finalizers", "etcdadmconfigs/finalizers", "clusters/finalizers"]),
];

/// Permissions that are used only with `E2E_FULL` set.
const USED_LATER: &[Excuse] = &[
    // To find out which endpoints a control plane uses when the record of them is lost.
    ("list", &["kubeadmconfigs"]),
    // To count an event that is repeated.
    ("patch", &["events"]),
    // To find out who owns an object that already exists, and whether a Machine is still held back before it is
    // deleted and made again.
    ("get", &["etcdadmconfigs", "*", "configmaps", "machines"]),
    // To delete the leftovers of a Machine that was not made, because the manager was refused or killed, and that is
    // not wanted any more.
    ("delete", &["etcdadmconfigs", "*"]),
];

/// Where clusters are made, and the value of the label by which managers share them.
#[derive(Clone, Copy)]
struct Place {
    namespace: &'static str,
    watch_filter: Option<&'static str>,
}

/// A whole life with only the permissions of `config/rbac`: none is missing, and none is unused.
pub(crate) async fn least_privilege(bed: &mut Bed) -> Result<()> {
    installed_from(bed, "default").await
}

/// The same with what a folder of `config` installs for all namespaces.
pub(crate) async fn installed_from(bed: &mut Bed, folder: &str) -> Result<()> {
    let documents = documents(&kustomize(bed, folder).await?)?;
    // The bed has already installed parts of this.
    install(bed, folder, &["--force-conflicts"]).await?;
    // The plane runs the admission plugin that needs these permissions.
    install(bed, "owner-references", &[]).await?;
    aggregated(bed).await?;
    // Again, as for an upgrade: fields that others have filled in meanwhile cause no conflict.
    install(bed, folder, &[]).await?;
    aggregated(bed).await?;
    ClusterHandle::make_namespace(&bed.client(), "rbac").await?;
    // The bed's own manager would do the work.
    bed.kill_manager(0).await?;
    let result = live(bed, &documents, Place { namespace: "rbac", watch_filter: None }).await;
    bed.start_manager(0).await?;
    result
}

/// The same for a manager that works on one namespace, and has permissions in no other.
pub(crate) async fn one_namespace(bed: &mut Bed) -> Result<()> {
    let documents = documents(&kustomize(bed, "namespaced").await?)?;
    let cluster_wide = documents.iter().filter(|document| document["kind"] == "ClusterRoleBinding").count();
    ensure!(
        cluster_wide == 2,
        "{cluster_wide} ClusterRoleBindings: CRDs and users are all that belongs to no namespace"
    );
    ClusterHandle::make_namespace(&bed.client(), "team-a").await?;
    install(bed, "namespaced", &["--force-conflicts"]).await?;
    // The plane runs the admission plugin that needs these permissions.
    install(bed, "owner-references", &[]).await?;
    aggregated(bed).await?;
    bed.kill_manager(0).await?;
    let result = live(bed, &documents, Place { namespace: "team-a", watch_filter: None }).await;
    bed.start_manager(0).await?;
    result
}

/// The same for an additional manager, which works on the objects with its watch-filter label.
pub(crate) async fn watch_filter(bed: &mut Bed) -> Result<()> {
    let documents = documents(&kustomize(bed, "watch-filter").await?)?;
    ClusterHandle::make_namespace(&bed.client(), "rbac-blue").await?;
    install(bed, "watch-filter", &["--force-conflicts"]).await?;
    // The plane runs the admission plugin that needs these permissions.
    install(bed, "owner-references", &[]).await?;
    aggregated(bed).await?;
    bed.kill_manager(0).await?;
    let result = live(bed, &documents, Place { namespace: "rbac-blue", watch_filter: Some("blue") }).await;
    bed.start_manager(0).await?;
    result
}

/// A whole life with what these documents install.
async fn live(bed: &Bed, documents: &[Value], place: Place) -> Result<()> {
    let account = documents.iter().find(|document| document["kind"] == "ServiceAccount").context("a ServiceAccount")?;
    let (namespace, name) = (text(account, "/metadata/namespace")?, text(account, "/metadata/name")?);
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let mark = bed.plane.mark();
    mount_account(bed, namespace, name).await?;
    let mut manager = start(bed, documents, namespace).await?;
    let result = bring_up_and_delete(bed, place).await;
    let token = reader(&bed.client(), namespace, "prometheus", Some("capi-etcdadm-metrics-reader")).await?;
    let read = metrics(METRICS_PORT, Some(&token)).await?;
    ensure!(get(HEALTH_PORT, "/metrics").await.is_err(), "everybody may read the metrics");
    let ended = manager.terminate(Duration::from_secs(20)).await?;
    let requests = bed.plane.requests_since(mark)?.user(&user);
    let refused = requests.filter(|request| request.code == 403);
    // Checked first, because a missing permission explains other failures.
    ensure!(refused.is_empty(), "the manager lacks permissions:\n{refused}");
    result?;
    ensure!(ended.success(), "the manager ended with {ended}");
    ensure!(!requests.resource("leases").is_empty(), "the manager did not take its lease:\n{requests}");
    let metrics = read.map_err(|status| anyhow::anyhow!("/metrics answers {status} to Prometheus"))?;
    metrics_are_documented(&metrics)?;
    nothing_left_over(documents, &requests)
}

/// Waits until the roles with our label are aggregated: an earlier request would be refused.
async fn aggregated(bed: &Bed) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(bed.client());
    until("the roles are aggregated", PATIENCE, async || {
        let rules = roles.get("capi-etcdadm-aggregated").await?.rules.unwrap_or_default();
        Ok((!rules.is_empty()).then_some(()))
    })
    .await
}

/// Installs a folder of `config` as docs/install.md says.
pub(crate) async fn install(bed: &Bed, of: &str, further: &[&str]) -> Result<()> {
    let kubeconfig = bed.plane.kubeconfig()?;
    kubectl(bed, |kubectl| {
        kubectl
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["apply", "--server-side"])
            .args(further)
            .arg("-k")
            .arg(folder(of))
    })
    .await
    .map(drop)
}

async fn kustomize(bed: &Bed, of: &str) -> Result<String> {
    kubectl(bed, |kubectl| kubectl.arg("kustomize").arg(folder(of))).await
}

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(of)
}

/// Runs kubectl, and returns what it prints.
async fn kubectl(
    bed: &Bed,
    arguments: impl FnOnce(&mut std::process::Command) -> &mut std::process::Command,
) -> Result<String> {
    let mut kubectl = bed.kubectl()?;
    arguments(&mut kubectl);
    tokio::task::spawn_blocking(move || output(&mut kubectl)).await?
}

/// Writes the files that kubelet mounts into a Pod.
async fn mount_account(bed: &Bed, namespace: &str, name: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(bed.client(), namespace);
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    let token = token.status.and_then(|status| status.token).context("no token")?;
    std::fs::create_dir_all(MOUNT)?;
    let file = |name: &str, content: &[u8]| std::fs::write(Path::new(MOUNT).join(name), content);
    file("token", token.as_bytes())?;
    file("namespace", namespace.as_bytes())?;
    let kubeconfig: Value = serde_json::from_slice(&std::fs::read(bed.plane.kubeconfig()?)?)?;
    file("ca.crt", &std::fs::read(text(&kubeconfig, "/clusters/0/cluster/certificate-authority")?)?)?;
    Ok(())
}

/// Starts the manager as the Deployment says, with the environment of a Pod, and waits until its readiness probe
/// succeeds.
async fn start(bed: &Bed, documents: &[Value], namespace: &str) -> Result<Process> {
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").context("a Deployment")?;
    let container = deployment.pointer("/spec/template/spec/containers/0").context("a container")?;
    let kubeconfig: Value = serde_json::from_slice(&std::fs::read(bed.plane.kubeconfig()?)?)?;
    let server = text(&kubeconfig, "/clusters/0/cluster/server")?.trim_start_matches("https://");
    let (host, server_port) = server.split_once(':').context("a port")?;
    let probe = &container["readinessProbe"]["httpGet"];
    let ports = [("health", HEALTH_PORT), ("metrics", METRICS_PORT)];
    ensure!(probe["port"] == "health", "the probe has another port: {probe}");
    let ports = ports.map(|(name, here)| {
        let port = list_of(&container["ports"]).find(|port| port["name"] == name);
        (port.map(|port| port["containerPort"].to_string()).unwrap_or_default(), here.to_string())
    });
    ensure!(ports.iter().all(|(port, _)| !port.is_empty()), "a port is missing: {}", container["ports"]);
    let arguments = list(&container["args"]).map(|argument| {
        let argument = argument.replace("$(POD_NAMESPACE)", namespace);
        ports.iter().fold(argument, |argument, (port, here)| argument.replace(port, here))
    });
    let mut process = Command::new("manager-as-in-a-pod", programs()?.join("manager"), bed.world().logs())
        .args(arguments)
        .env("KUBERNETES_SERVICE_HOST", host)
        .env("KUBERNETES_SERVICE_PORT", server_port)
        .env("HOME", "/nonexistent")
        .env_remove("KUBECONFIG")
        .spawn()?;
    let path = text(probe, "/path")?;
    until(format!("the manager is ready (log: {})", process.log().display()), Duration::from_secs(30), async || {
        ensure!(process.is_running()?, "it has ended");
        Ok(get(HEALTH_PORT, path).await.is_ok().then_some(()))
    })
    .await?;
    get(HEALTH_PORT, text(container, "/livenessProbe/httpGet/path")?).await?;
    if Path::new("/proc/net/if_inet6").exists() {
        // Pods may have IPv6 alone.
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, HEALTH_PORT));
        get_from(address, path).await.context("the probe over IPv6")?;
    } else {
        println!("the kernel has no IPv6: the probe is asked over IPv4 alone");
    }
    Ok(process)
}

impl Place {
    /// The example's cluster, under another name.
    fn manifests(self, name: &str) -> Result<Manifests> {
        let mut manifests = Manifests::new(self.namespace, name)?;
        if let Some(value) = self.watch_filter {
            for document in manifests.documents_mut() {
                document["metadata"]["labels"][WATCH_FILTER_LABEL] = json!(value);
            }
        }
        Ok(manifests)
    }
}

/// Runs clusters that make the manager send every kind of request that it may have to send.
async fn bring_up_and_delete(bed: &Bed, place: Place) -> Result<()> {
    let (client, namespace) = (bed.client(), place.namespace);
    // One cluster has to take over the lock of a Machine that is gone, and reads a file from a Secret.
    let lock = left_behind("late", &json!({ETCD_CLUSTER_LABEL: "late-etcd"}))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &lock).await?;
    let motd: Secret = serde_json::from_value(json!({"metadata": {"name": "motd"}, "stringData": {"text": "hello"}}))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &motd).await?;
    let file = json!({"path": "/etc/motd", "contentFrom": {"secret": {"name": "motd", "key": "text"}}});
    let clusters = [
        place.manifests("usual")?,
        place
            .manifests("late")?
            .replicas(1)
            .with("EtcdCluster", |etcd| etcd["spec"]["etcdadmConfigSpec"]["files"] = json!([file])),
    ];
    for manifests in &clusters {
        manifests.apply(&client).await?;
    }
    for manifests in &clusters {
        let handle = ClusterHandle::new(&client, manifests);
        handle.until_ready(PATIENCE).await?;
        handle.until_control_plane_data(PATIENCE).await?;
        handle.delete("Cluster", &manifests.name).await?;
    }
    if is_full() {
        let handle = life::long(bed, place.manifests("long")?).await?;
        handle.delete("Cluster", &handle.cluster).await?;
    }
    let handle = ClusterHandle::new(&client, &clusters[0]);
    let gone = ["Cluster", "EtcdCluster", "KubeadmControlPlane", "Machine", "EtcdadmConfig", "LocalMachine"];
    until("the Clusters and what belongs to them are gone", PATIENCE, async || {
        for kind in gone {
            let left = handle.names(kind, "").await?;
            ensure!(left.is_empty(), "{kind} {} is left", left.join(", "));
        }
        Ok(Some(()))
    })
    .await
}

/// The init lock of a Cluster, as a Machine that is gone has left it.
fn left_behind(cluster: &str, labels: &Value) -> Result<ConfigMap> {
    let lock = json!({
        "metadata": {"name": init_lock(cluster), "labels": labels},
        "data": {"lock-information": r#"{"machineName": "gone", "machineUID": "gone"}"#},
    });
    Ok(serde_json::from_value(lock)?)
}

/// Checks that docs/metrics.md explains every metric in `/metrics`.
fn metrics_are_documented(metrics: &str) -> Result<()> {
    let documentation = include_str!("../../../docs/metrics.md");
    let names = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !documentation.contains(&format!("`{name}"))).collect();
    ensure!(missing.is_empty(), "docs/metrics.md does not explain {}", missing.join(", "));
    Ok(())
}

fn nothing_left_over(documents: &[Value], requests: &Requests) -> Result<()> {
    // Roles without a binding are for people.
    let is_bound = |role: &&Value| {
        let of =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": role["metadata"]["name"]});
        documents.iter().any(|document| document["roleRef"] == of)
    };
    let roles = documents.iter().filter(|document| document["kind"] == "ClusterRole" || document["kind"] == "Role");
    let roles: Vec<&Value> = roles.filter(is_bound).collect();
    ensure!(roles.len() >= 5, "only {} roles are bound", roles.len());
    let all: Vec<Permission<'_>> = roles.into_iter().flat_map(permissions).collect();
    let named = |wanted: &dyn Fn(&Permission<'_>) -> bool| {
        let name = |it: &Permission<'_>| format!("{} {}.{}", it.verb, it.resource, it.group);
        let found: BTreeSet<String> = all.iter().filter(|it| wanted(it)).map(name).collect();
        Vec::from_iter(found).join(", ")
    };
    // A permission that is used in every run needs no excuse any more.
    println!("  excused, and used: [{}]", named(&|it| it.is_excused() && it.is_used(requests)));
    let unused = named(&|it| !it.is_used(requests) && !it.is_excused());
    ensure!(unused.is_empty(), "permissions that are not needed: {unused}");
    Ok(())
}

/// One verb on one resource.
struct Permission<'a> {
    group: &'a str,
    resource: &'a str,
    verb: &'a str,
}

/// Every permission of a role.
fn permissions(role: &Value) -> Vec<Permission<'_>> {
    let mut found = Vec::new();
    for rule in list_of(&role["rules"]) {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                found.extend(list(&rule["verbs"]).map(|verb| Permission { group, resource, verb }));
            }
        }
    }
    found
}

fn list(texts: &Value) -> impl Iterator<Item = &str> {
    list_of(texts).filter_map(Value::as_str)
}

fn list_of(values: &Value) -> impl Iterator<Item = &Value> {
    values.as_array().into_iter().flatten()
}

impl Permission<'_> {
    fn is_used(&self, requests: &Requests) -> bool {
        requests.iter().any(|request| {
            let resource = match request.subresource.as_str() {
                "" => request.resource.clone(),
                subresource => format!("{}/{subresource}", request.resource),
            };
            request.verb == self.verb
                && request.group == self.group
                && (self.resource == "*" || self.resource == resource)
        })
    }

    fn is_excused(&self) -> bool {
        let later = USED_LATER.iter().filter(|_| !is_full());
        let mut excuses = UNUSED.iter().chain(later);
        excuses.any(|(verb, resources)| *verb == self.verb && resources.contains(&self.resource))
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer}"))
}
