//! What is done with each command of the pages.

/// What is done with a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is run, and has to succeed.
    Run,
    /// The same on a new cluster, because the commands before it on the page are an alternative, or have used the
    /// cluster up.
    Afresh,
    /// It is run, has to succeed, and has to print something about the EtcdCluster.
    Answers,
    /// It is run, and has to say that the EtcdCluster is refused.
    Refuses,
    /// It is run, has to show the EtcdCluster, and goes on until it is ended.
    Endless,
    /// It is run on a machine of etcd, and has to succeed.
    Machine,
    /// It is run as a dry run: the API server answers whether it would succeed.
    Judged,
    /// It is not run here, for this reason.
    Excused(&'static str),
}

use Fate::{Afresh, Answers, Endless, Excused, Judged, Machine, Refuses, Run};

const BUILDS: Fate = Excused("it builds for minutes");
const CHECKS: Fate = Excused("hack/test.sh or .ci/full runs it");
const BED: Fate = Excused("it makes a bed of its own, as the tests do");
const KIND: Fate = Excused("kind and its images come from registries; docker's outsider:: goes a like way");
const APPLIED: Fate = Excused("examples::every_document_is_accepted of the api tier applies what it writes");
const GENERATED: Fate =
    Excused("clusterctl::whole_life types it up to kubectl; examples:: of the api tier applies that");
const REGISTRY: Fate = Excused("it needs a registry, or a tool for one");
const DOCKER: Fate = Excused("the machines here are not containers");
const SSH: Fate = Excused("the machines here have no sshd");
const JOURNAL: Fate = Excused("the machines here have no journal");
const PODS: Fate = Excused("no Pod runs here; docker's outsider:: has some");
const CLUSTERCTL: Fate = Excused("clusterctl::whole_life runs it, on a release of its own");
const CORE: Fate =
    Excused("Cluster API's own providers come from GitHub; clusterctl::whole_life has a stand-in for the core");
const IMAGE: Fate = Excused("it changes the image of a machine; etcdadm's tests run the script on an empty one");
const MOVE: Fate = Excused("clusterctl::moves does it, which has a second management cluster");
const RESTORE: Fate = Excused("restores::from_a_snapshot types it");
const SIGNING: Fate = Excused("manager/tests/release signs and verifies in these words");
const COMPUTER: Fate = Excused("it changes this computer");

/// A page, or nothing for any page; the beginning of the commands; their fate.
pub(super) type Row = (&'static str, &'static str, Fate);

/// The first row that matches counts. A row that ends with a letter or digit ends with a whole word.
pub(super) const COMMANDS: &[Row] = &[
    ("README.md", "kubectl apply --server-side -f config/admission/etcdcluster-deletion.yaml", Judged),
    ("README.md", "kubectl annotate ", Afresh),
    ("README.md", "sed 's|localhost/|", Excused("it is judged on docs/install.md, which makes the file first")),
    ("README.md", "target/debug/manager ", Excused("every bed starts the manager so")),
    ("docs/api.md", "/opt/bin/etcdctl.sh snapshot save FILE", Excused("docs/tasks/upgrade.md has it, and is typed")),
    ("docs/api.md", "kubectl annotate machines ", Afresh),
    ("docs/bootstrap.md", "docker ps --format '{{ .Names }}'", Excused("it is an example of what a file may have")),
    ("docs/cluster-hooks.md", "kubectl patch kubeadmcontrolplane CONTROL_PLANE ", Judged),
    ("docs/cluster-hooks.md", "kubectl annotate crd ", Judged),
    (
        "docs/cluster-hooks.md",
        "kubectl --namespace kube-system get configmap kubeadm-config ",
        Excused("kubeadm does not run here; docker's life:: and gitops:: read it"),
    ),
    ("docs/docker.md", "docker exec <machine> systemctl reboot", Excused("docker's reboots:: does it")),
    ("docs/etcdadm.md", "systemctl start etcd", RESTORE),
    ("docs/etcdadm.md", "systemctl stop etcd", RESTORE),
    ("docs/examples.md", "kind create cluster ", KIND),
    ("docs/examples.md", "kind load image-archive ", KIND),
    ("docs/examples.md", "kind delete cluster", KIND),
    ("docs/examples.md", "clusterctl init --core ", KIND),
    ("docs/examples.md", "clusterctl get kubeconfig demo ", KIND),
    ("docs/examples.md", "kubectl apply --server-side -f out/release/", KIND),
    ("docs/examples.md", "sed -e 's|", APPLIED),
    ("docs/examples.md", "sed '/skipPhases/d' examples/docker/cluster-template.yaml ", GENERATED),
    ("docs/examples.md", "mkdir -p out/etcd-machine ", KIND),
    ("docs/examples.md", "docker build --tag cluster-api-provider-etcdadm/etcd-machine:dev ", KIND),
    ("docs/examples.md", "kubectl --kubeconfig out/demo.kubeconfig apply ", KIND),
    ("docs/examples.md", "kubectl wait --for=condition=Initialized ", KIND),
    ("docs/examples.md", "kubectl -n capi-etcdadm-system rollout status ", PODS),
    ("docs/examples.md", "ssh admin@ADDRESS", SSH),
    ("docs/gitops.md", "kubectl wait --for=condition=Ready ", Run),
    ("docs/install.md", "openssl genpkey ", SIGNING),
    ("docs/install.md", "openssl pkey ", SIGNING),
    ("docs/install.md", "openssl dgst ", SIGNING),
    ("docs/install.md", "sha256sum --check ", SIGNING),
    ("docs/install.md", "kind load image-archive ", REGISTRY),
    ("docs/install.md", "skopeo copy ", REGISTRY),
    ("docs/install.md", "crane push ", REGISTRY),
    ("docs/install.md", "docker manifest create ", REGISTRY),
    ("docs/install.md", "docker manifest push ", REGISTRY),
    ("docs/install.md", "make manifests", Run),
    ("docs/install.md", "manager --help", Run),
    ("docs/install.md", "mkdir -p ~/etcdadm-releases/", CLUSTERCTL),
    ("docs/install.md", "cp out/release/", CLUSTERCTL),
    ("docs/install.md", "sed 's|localhost/|", Judged),
    ("docs/install.md", "kubectl apply --server-side -f out/release/", Judged),
    ("docs/install.md", "sed '/skipPhases/d' out/release/cluster-template-docker.yaml ", GENERATED),
    ("docs/install.md", "clusterctl init --core ", CORE),
    ("docs/install.md", "clusterctl init --bootstrap etcdadm:", CLUSTERCTL),
    ("docs/install.md", "clusterctl generate cluster NAME --from FILE --list-variables", CLUSTERCTL),
    ("docs/install.md", "clusterctl describe cluster demo", CLUSTERCTL),
    ("docs/install.md", "clusterctl upgrade apply --bootstrap etcdadm:", CLUSTERCTL),
    ("docs/install.md", "clusterctl delete --bootstrap etcdadm", CLUSTERCTL),
    ("docs/install.md", "kubectl create namespace ", Run),
    ("docs/install.md", "kubectl -n capi-etcdadm-system create configmap ", Run),
    ("docs/install.md", "kubectl -n capi-etcdadm-system label configmap ", Run),
    ("docs/install.md", "kubectl -n capi-etcdadm-system rollout status ", PODS),
    ("docs/install.md", "kubectl -n capi-etcdadm-system delete bootstrapproviders.", Judged),
    ("docs/install.md", "kubectl -n capi-etcdadm-system delete configmap ", Run),
    ("docs/install.md", "kubectl -n NAMESPACE delete ", Judged),
    ("docs/install.md", "kubectl delete namespaces ", Judged),
    ("docs/install.md", "kubectl delete clusterrolebindings ", Judged),
    ("docs/install.md", "kubectl delete clusterroles,clusterrolebindings ", Judged),
    ("docs/install.md", "kubectl apply -f config/operator/", Judged),
    ("docs/install.md", "kubectl apply --server-side -f config/admission/", Judged),
    ("docs/install.md", "kubectl apply --server-side -k config/aggregate-to-people", Run),
    ("docs/install.md", "kubectl delete -k config/aggregate-to-people", Run),
    ("docs/install.md", "kubectl delete -k config/", Judged),
    ("docs/install.md", "kubectl delete -f config/admission/", Judged),
    ("", "tar -xzf out/release/", Excused("docker's released:: unpacks it, into a folder of its own")),
    ("docs/kubectl-plugin.md", "install target/release/kubectl-etcdcluster ", COMPUTER),
    ("docs/kubectl-plugin.md", "install config/krew/", Excused("plugin:: of the api tier has kubectl run the file")),
    ("docs/kubectl-plugin.md", "source <(kubectl etcdcluster completion bash)", Run),
    ("docs/kubectl-plugin.md", "sed s/3.6.15/3.6.16/ cluster.yaml | kubectl etcdcluster plan ", Answers),
    ("docs/kubectl-plugin.md", "sed s/3.6.16/3.8.0/ cluster.yaml | kubectl etcdcluster plan ", Refuses),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster plan -f four.yaml", Refuses),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster move ", MOVE),
    ("docs/tasks/back-up-and-restore.md", "kubectl wait --for=condition=Paused ", RESTORE),
    ("docs/machine-image.md", "sudo ROOT=", IMAGE),
    ("docs/machine-image.md", "virt-customize ", IMAGE),
    ("docs/metrics.md", "kubectl get etcdclusters.etcdcluster.cluster.x-k8s.io -A -o json | jq ", Answers),
    ("docs/move.md", "clusterctl move ", MOVE),
    ("docs/move.md", "kubectl etcdcluster move ", MOVE),
    ("docs/move.md", "kubectl -n default label secret ", Judged),
    ("docs/operations.md", "docker exec -it MACHINE bash", DOCKER),
    ("docs/start.md", "bash -c '. hack/setup.sh && cargo run -p e2e -- tools build --all-etcd'", BUILDS),
    ("docs/start.md", "go clean -cache -modcache", COMPUTER),
    ("docs/tasks/back-up-and-restore.md", "ssh admin@ADDRESS ", SSH),
    // Nobody would lift the pause before the Cluster of the page is deleted.
    ("docs/tasks/back-up-and-restore.md", "kubectl patch cluster ", Judged),
    ("docs/tasks/back-up-and-restore.md", "docker cp MACHINE:/root/etcd.snapshot .", DOCKER),
    ("docs/tasks/back-up-and-restore.md", "docker cp etcd.snapshot MACHINE:/root/", DOCKER),
    ("docs/tasks/back-up-and-restore.md", "systemctl stop etcd", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "systemctl start --no-block etcd", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "mv /var/lib/etcd ", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "/opt/bin/etcdutl snapshot restore ", RESTORE),
    ("docs/tasks/back-up-and-restore.md", "rm /etc/etcd/epoch ", RESTORE),
    ("docs/tasks/delete.md", "kubectl annotate ", Afresh),
    ("docs/tasks/monitor.md", "kubectl -n capi-etcdadm-system create serviceaccount ", Judged),
    ("docs/tasks/monitor.md", "HOLDER=$(kubectl ", PODS),
    ("docs/tasks/monitor.md", "kubectl -n capi-etcdadm-system port-forward ", PODS),
    ("docs/tasks/monitor.md", "curl ", Excused("metrics::are_for_those_who_may_read_them asks for the same")),
    ("docs/troubleshooting.md", "kubectl -n capi-etcdadm-system logs ", PODS),
    ("docs/troubleshooting.md", "kubectl -n \"$NAMESPACE\" ", Excused("uninstalled::manager_first runs it")),
    // The annotation is there, because nothing is wrong with this cluster.
    (
        "docs/troubleshooting.md",
        "kubectl annotate etcdclusters.etcdcluster.cluster.x-k8s.io NAME etcdcluster.cluster.x-k8s.io/endpoints-in-use=",
        Judged,
    ),
    ("docs/troubleshooting.md", "journalctl -u etcd", JOURNAL),
    ("docs/troubleshooting.md", "systemctl status etcd", JOURNAL),
    ("docs/troubleshooting.md", "systemctl start etcd", RESTORE),
    ("docs/troubleshooting.md", "systemctl stop etcd", RESTORE),
    ("", "hack/demo.sh", BED),
    ("", "hack/test.sh", BED),
    ("", "E2E_FULL=1 hack/test.sh", BED),
    ("", "hack/sabotage.sh NAME", BED),
    ("", "E2E_SABOTAGE=NAME hack/test.sh", BED),
    ("", "hack/sabotage.sh --check", CHECKS),
    ("", "hack/programs.sh ", BUILDS),
    ("", "hack/reproduce.sh DIRECTORY", BUILDS),
    ("", "make release", BUILDS),
    ("", "ARCHITECTURES=amd64 make release", BUILDS),
    ("", "SIGNING_KEY=release-key.pem make release", BUILDS),
    ("", "make reproduce", BUILDS),
    ("", "make manifests", Excused("docs/install.md has it, and is typed")),
    ("", "make help", Excused("it prints the targets; api/tests/documentation.rs looks for those that the pages name")),
    ("", "make generate", CHECKS),
    ("", "make lint", CHECKS),
    ("", "make deny", CHECKS),
    ("", "make model", CHECKS),
    ("", "MODEL_MIB=16000 MODEL_SECONDS=7200 make model", CHECKS),
    ("", "make mutants", CHECKS),
    ("", "make sabotage", CHECKS),
    ("", "make bench", Excused("it measures for minutes")),
    ("", "make bench-clusters", Excused("it measures for minutes")),
    ("", "make bench-docker", Excused("it measures for minutes")),
    ("", "make bench-reconciles", Excused("it measures for minutes")),
    ("", "cargo build -p manager", BUILDS),
    ("", "cargo build -p etcdadm", BUILDS),
    ("", "cargo build --release -p kubectl-etcdcluster", BUILDS),
    ("", "cargo build --workspace --bins", BUILDS),
    ("", "cargo rustc -p etcdadm --bin etcdadm -- -C target-feature=+crt-static", BUILDS),
    ("", "cargo run -p e2e -- tools build", BUILDS),
    ("", "cargo test -p CRATE NAME", CHECKS),
    ("", "cargo test -p e2e", CHECKS),
    ("", "cargo test -p etcdadm --test real_etcd", CHECKS),
    ("", "cargo test -p etcd-cluster-controller --test model ", CHECKS),
    ("", "cargo test --workspace --test machine", CHECKS),
    ("", "cargo test --workspace --test local -- --exact bring_up::three_members", CHECKS),
    ("", "INSTA_UPDATE=always cargo test -p etcd-cluster-controller --lib lives", Excused("it changes the checkout")),
    ("", "go mod tidy", Excused("it changes the checkout")),
    ("", "sysctl kernel.apparmor_restrict_unprivileged_userns=0", COMPUTER),
    ("", "sysctl fs.inotify.max_user_instances=1024", COMPUTER),
    ("", "docker load --input out/release/", REGISTRY),
    ("", "docker tag localhost/cluster-api-provider-etcdadm:", REGISTRY),
    ("", "docker push ", REGISTRY),
    ("", "local-infrastructure machine list", Run),
    ("", "hack/enter.sh kubectl etcdcluster watch ", Endless),
    ("", "hack/enter.sh ", Run),
    ("", "/opt/bin/", Machine),
    ("", "kubectl get ", Run),
    ("", "kubectl describe ", Run),
    ("", "kubectl events ", Run),
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
    ("", "kubectl etcdcluster watch ", Endless),
    ("", "kubectl etcdcluster plan ", Answers),
    ("", "kubectl etcdcluster doctor ", Answers),
    ("", "kubectl etcdcluster ", Run),
];

/// Code in the text that is less than a command: a form, or a command without what it is about. The whole code.
pub(super) const FORMS: &[(&str, &str)] = &[
    ("docs/cluster-hooks.md", "kubectl apply --server-side"),
    ("docs/cluster-hooks.md", "kubectl annotate --overwrite"),
    ("docs/cluster-hooks.md", "kubectl delete -f"),
    ("docs/conditions.md", "kubectl get -o wide"),
    ("docs/conditions.md", "local-infrastructure machine power-on"),
    ("docs/decisions/0023-learners-side-by-side.md", "systemctl enable --now"),
    ("docs/docker.md", "clusterctl init --wait-providers"),
    ("docs/etcdadm.md", "etcdctl.sh member list"),
    ("docs/examples.md", "kubectl apply --server-side"),
    (
        "docs/install.md",
        "INFRASTRUCTURE_CLUSTER_KIND=Metal3Cluster INFRASTRUCTURE_MACHINE_TEMPLATE_KIND=Metal3MachineTemplate \
        clusterctl generate cluster …",
    ),
    ("docs/install.md", "kubectl apply --server-side -k"),
    ("docs/install.md", "kubectl delete -f"),
    ("docs/install.md", "kubectl delete -k"),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster status [NAME]"),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster watch [NAME]"),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster rollout pause|resume|restart NAME"),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster doctor [NAME | -f FILE]"),
    ("docs/kubectl-plugin.md", "kubectl etcdcluster completion SHELL"),
    ("docs/local-infrastructure.md", "local-infrastructure machine …"),
    ("docs/move.md", "clusterctl move --dry-run"),
    ("docs/move.md", "clusterctl move --to-directory"),
    ("docs/move.md", "kubectl etcdcluster move --dry-run"),
    ("docs/operations.md", "local-infrastructure machine exec NAMESPACE/MACHINE -- PROGRAM …"),
    ("docs/tasks/delete.md", "kubectl delete -f"),
    ("docs/troubleshooting.md", "etcdctl.sh member remove"),
    ("docs/troubleshooting.md", "kubectl describe machine"),
    ("docs/upgrades.md", "clusterctl upgrade apply"),
];

/// Blocks of a page that are not commands, by their beginning.
pub(super) const PICTURES: &[(&str, &str)] = &[
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
