//! What is done with each command of the pages.

use anyhow::{Result, ensure};
use e2e::pages::blocks;

/// What is done with a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is run, and has to succeed.
    Run,
    /// The same on a new cluster, because the commands before it on the page are an alternative, or have used the
    /// cluster up.
    Afresh,
    /// It is run, and has to print something about the EtcdCluster. It may fail, which means that the answer is no.
    Answers,
    /// It is run, has to show the EtcdCluster, and goes on until it is ended.
    Endless,
    /// It is run on a machine of etcd, and has to succeed.
    Machine,
    /// It is run as a dry run: the API server answers whether it would succeed.
    Judged,
    /// It is not run here, for this reason.
    Excused(&'static str),
}

use Fate::{Afresh, Answers, Endless, Excused, Judged, Machine, Run};

/// A command, and its page.
pub(super) struct Typed {
    pub(super) page: String,
    pub(super) command: String,
    pub(super) fate: Fate,
}

const BUILDS: Fate = Excused("it builds for minutes");
const BED: Fate = Excused("it makes a bed of its own, as the tests do");
const KIND: Fate = Excused("kind and its images come from registries; docker's outsider:: goes a like way");
const SED: Fate = Excused("examples::every_document_is_accepted of the api tier applies what it writes");
const REGISTRY: Fate = Excused("it needs a registry, or a tool for one");
const PODS: Fate = Excused("no Pod runs here; docker's outsider:: has some");
const CLUSTERCTL: Fate = Excused("clusterctl::whole_life runs it, on a release of its own");
const CORE: Fate =
    Excused("Cluster API's own providers come from GitHub; clusterctl::whole_life has a stand-in for the core");
const NOT_KEPT: Fate = Excused("it is about what the API server has judged, and has not kept");
const IMAGE: Fate = Excused("it changes the image of a machine; etcdadm's tests run the script on an empty one");
const MOVE: Fate = Excused("clusterctl::moves does it, which has a second management cluster");
const RESTORE: Fate = Excused("restores::from_a_snapshot types it");
const SIGNING: Fate = Excused("manager/tests/release signs and verifies in these words");
const COMPUTER: Fate = Excused("it changes this computer");

/// Page, or nothing for any page; the beginning of the commands; their fate. The first row that matches counts.
const COMMANDS: &[(&str, &str, Fate)] = &[
    ("docs/cluster-hooks.md", "kubectl patch kubeadmcontrolplane CONTROL_PLANE ", Judged),
    ("docs/cluster-hooks.md", "kubectl annotate crd ", Judged),
    ("docs/examples.md", "kind ", KIND),
    ("docs/examples.md", "clusterctl ", KIND),
    ("docs/examples.md", "sed ", SED),
    ("docs/examples.md", "kubectl apply --server-side -f out/release/", KIND),
    ("docs/examples.md", "mkdir -p out/etcd-machine ", KIND),
    ("docs/examples.md", "kubectl --kubeconfig out/demo.kubeconfig ", KIND),
    ("docs/examples.md", "kubectl wait --for=condition=Initialized ", KIND),
    ("docs/examples.md", "kubectl -n capi-etcdadm-system rollout status ", PODS),
    ("docs/install.md", "openssl ", SIGNING),
    ("docs/install.md", "sha256sum --check ", SIGNING),
    ("docs/install.md", "kind ", REGISTRY),
    ("docs/install.md", "skopeo ", REGISTRY),
    ("docs/install.md", "crane ", REGISTRY),
    ("docs/install.md", "make manifests", Run),
    ("docs/install.md", "mkdir -p ~/etcdadm-releases/", CLUSTERCTL),
    ("docs/install.md", "cp out/release/", CLUSTERCTL),
    ("docs/install.md", "sed 's|localhost/|", Judged),
    ("docs/install.md", "kubectl apply --server-side -f out/release/", Judged),
    ("docs/install.md", "sed ", SED),
    ("docs/install.md", "clusterctl init --core ", CORE),
    ("docs/install.md", "clusterctl ", CLUSTERCTL),
    ("docs/install.md", "kubectl create namespace ", Excused("what is judged has its namespace already")),
    ("docs/install.md", "kubectl -n capi-etcdadm-system create configmap ", Judged),
    ("docs/install.md", "kubectl -n capi-etcdadm-system rollout status ", PODS),
    ("docs/install.md", "kubectl -n capi-etcdadm-system ", NOT_KEPT),
    ("docs/install.md", "kubectl -n NAMESPACE delete ", Judged),
    ("docs/install.md", "kubectl delete namespaces ", Judged),
    ("docs/install.md", "kubectl delete clusterrolebindings ", Judged),
    ("docs/install.md", "kubectl apply -f config/operator/", Judged),
    ("docs/install.md", "kubectl apply --server-side -k config/namespaced", Excused("rbac::one_namespace installs it")),
    (
        "docs/install.md",
        "kubectl apply --server-side -k config/watch-filter",
        Excused("rbac::watch_filter installs it"),
    ),
    ("docs/install.md", "kubectl delete clusterroles,clusterrolebindings ", Judged),
    ("docs/kubectl-plugin.md", "install ", COMPUTER),
    ("docs/kubectl-plugin.md", "source <(kubectl etcdcluster completion bash)", Run),
    ("docs/kubectl-plugin.md", "sed ", Answers),
    ("docs/machine-image.md", "sudo ROOT=", IMAGE),
    ("docs/machine-image.md", "virt-customize ", IMAGE),
    ("docs/metrics.md", "kubectl get etcdclusters.etcdcluster.cluster.x-k8s.io -A -o json | jq ", Answers),
    ("docs/move.md", "clusterctl move ", MOVE),
    ("docs/move.md", "kubectl etcdcluster move ", MOVE),
    ("docs/move.md", "kubectl -n default label secret ", Excused("no Cluster here has a CA of a user's own")),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster move ", MOVE),
    ("docs/tasks/back-up-and-restore.md", "systemctl ", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "mv /var/lib/etcd ", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "/opt/bin/etcdutl snapshot restore ", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "rm /etc/etcd/epoch ", RESTORE),
    ("docs/tasks/delete.md", "kubectl annotate ", Afresh),
    ("docs/tasks/monitor.md", "kubectl apply --server-side -k config/prometheus", Judged),
    ("docs/tasks/monitor.md", "kubectl -n capi-etcdadm-system create serviceaccount ", Judged),
    ("docs/tasks/monitor.md", "HOLDER=$(kubectl ", PODS),
    ("docs/tasks/monitor.md", "kubectl -n capi-etcdadm-system port-forward ", PODS),
    ("docs/tasks/monitor.md", "curl ", Excused("metrics::are_for_those_who_may_read_them asks for the same")),
    ("docs/troubleshooting.md", "kubectl -n \"$NAMESPACE\" ", Excused("uninstalled::manager_first runs it")),
    ("README.md", "sed ", Excused("it is judged on docs/install.md, which makes the file first")),
    ("README.md", "target/debug/manager ", Excused("every bed starts the manager so")),
    ("", "hack/demo.sh", BED),
    ("", "hack/test.sh", BED),
    ("", "E2E_FULL=1 hack/test.sh", BED),
    ("", "hack/programs.sh ", BUILDS),
    ("", "ARCHITECTURES=amd64 make ", BUILDS),
    ("", "SIGNING_KEY=release-key.pem make ", BUILDS),
    ("", "MODEL_MIB=16000 MODEL_SECONDS=7200 make ", BUILDS),
    ("", "cargo ", BUILDS),
    ("", "docker ", REGISTRY),
    ("", "hack/enter.sh kubectl etcdcluster watch ", Endless),
    ("", "hack/enter.sh ", Run),
    ("", "/opt/bin/", Machine),
    ("", "kubectl get ", Run),
    ("", "kubectl describe ", Run),
    ("", "kubectl scale ", Run),
    ("", "kubectl patch ", Run),
    ("", "kubectl annotate ", Run),
    ("", "kubectl label ", Run),
    ("", "kubectl delete ", Run),
    ("", "kubectl create role ", Run),
    ("", "kubectl create rolebinding ", Run),
    // Their objects are in no namespace, so they would stay.
    ("", "kubectl create clusterrole ", Judged),
    ("", "kubectl create clusterrolebinding ", Judged),
    ("", "kubectl apply --server-side -k ", Judged),
    ("", "kubectl etcdcluster plan ", Answers),
    ("", "kubectl etcdcluster doctor ", Answers),
    ("", "kubectl etcdcluster ", Run),
];

/// Blocks of a page that are not commands, by their beginning.
const PICTURES: &[(&str, &str)] = &[
    ("README.md", "Starting a management plane of real parts"),
    ("README.md", "Proof: kubectl with the kubeconfig"),
    ("docs/architecture.md", " you ── apply ──> Cluster"),
    ("docs/architecture.md", "watch event, or a verdict"),
    ("docs/architecture.md", "unhealthy, the others have a quorum"),
    ("docs/architecture.md", "Machines do not match the spec"),
    ("docs/architecture.md", "replacement votes, or the member is unhealthy"),
    ("docs/architecture.md", "   EtcdCluster, Cluster        cluster-hooks"),
    ("docs/bootstrap.md", "[ETCDADM_INIT_NOT_AFTER=<time>]"),
    ("docs/etcdadm.md", "etcdadm init "),
    ("docs/local-infrastructure.md", "local-infrastructure crds [--out DIR]"),
    ("docs/local-infrastructure.md", "<state-dir>/"),
    ("docs/metrics.md", "time() - etcdadm_provider_"),
    ("docs/testbed.md", "life-of-one: "),
    ("docs/testbed.md", "removes-unannounced "),
];

/// Every command of every page, in their order.
pub(super) fn typed() -> Result<Vec<Typed>> {
    let mut typed = Vec::new();
    let (mut known, mut seen) = (vec![false; COMMANDS.len()], vec![false; PICTURES.len()]);
    let mut unknown = Vec::new();
    for block in blocks()? {
        let picture = PICTURES.iter().position(|(page, begins)| {
            block.page == *page && block.first().trim_start().starts_with(begins.trim_start())
        });
        if let Some(picture) = picture {
            seen[picture] = true;
            continue;
        }
        for command in block.commands() {
            let fits = |(page, begins, _): &(&str, &str, Fate)| {
                (page.is_empty() || block.page == *page) && command.starts_with(*begins)
            };
            match COMMANDS.iter().position(fits) {
                Some(row) => {
                    known[row] = true;
                    typed.push(Typed { page: block.page.clone(), command, fate: COMMANDS[row].2 });
                }
                None => unknown.push(format!("{}: {command}", block.page)),
            }
        }
    }
    ensure!(unknown.is_empty(), "what becomes of these is not in the table:\n{}", unknown.join("\n"));
    let commands = COMMANDS.iter().map(|(page, begins, _)| (page, begins)).zip(known);
    let rows = commands.chain(PICTURES.iter().map(|(page, begins)| (page, begins)).zip(seen));
    let idle: Vec<String> =
        rows.filter(|(_, known)| !known).map(|((page, begins), _)| format!("{page} {begins}")).collect();
    ensure!(idle.is_empty(), "nothing in the pages begins like this any more:\n{}", idle.join("\n"));
    Ok(typed)
}
