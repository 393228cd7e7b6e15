//! A management cluster whose Kubernetes does not have every kind of `config/default`.

use crate::{CLEAR, bring_up, confirmation, deletion, gitops, marked, rbac};
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, plugin};
use std::process::Command;

/// The folder of `config` that the documentation names for it.
const FOLDER: &str = "before-kubernetes-1.36";
/// The version of the API server.
const VERSION: &str = "v1.33.";
/// The policy that is left out.
const LEFT_OUT: &str = "capi-etcdadm-etcd-endpoints";

/// The provider is installed as the documentation says, and the manager runs with what that installs. Only one policy
/// is missing, and `doctor` says which. Then a cluster has the life that it has on other releases. Endpoints that a
/// manifest overwrites are restored, and a deletion is confirmed.
pub(crate) async fn kubernetes_1_33(bed: &mut Bed) -> Result<()> {
    let version = bed.client().apiserver_version().await.context("ask for the version")?.git_version;
    ensure!(version.starts_with(VERSION), "the API server is {version}");
    rbac::installed_from(bed, FOLDER).await.context("the manager as it is installed")?;
    bed.clear(CLEAR).await?;
    only_one_kind_is_unknown(bed).await?;
    doctor_misses_one_policy(bed, &version).await?;
    bring_up::three_members(bed).await?;
    bed.clear(CLEAR).await?;
    gitops::without_the_policy(bed).await?;
    bed.clear(CLEAR).await?;
    marked::by_a_health_check(bed).await?;
    bed.clear(CLEAR).await?;
    confirmation::is_asked_for(bed).await?;
    bed.clear(CLEAR).await?;
    deletion::when_up(bed).await
}

/// The API server would take all of `config/default` except one kind and its bindings. Otherwise the folder for it
/// would have to leave out more, or nothing.
async fn only_one_kind_is_unknown(bed: &Bed) -> Result<()> {
    let answer = rbac::install(bed, "default", &["--force-conflicts", "--dry-run=server"]).await;
    let refused = format!("{:#}", answer.err().context("config/default is taken")?);
    let kinds: Vec<&str> =
        refused.split("no matches for kind \"").skip(1).filter_map(|it| it.split('"').next()).collect();
    let wanted = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];
    ensure!(kinds == wanted && !refused.contains("Error from server"), "the answer is {refused}");
    Ok(())
}

/// `kubectl etcdcluster doctor` finds this Kubernetes recent enough, and the other policy in its place.
async fn doctor_misses_one_policy(bed: &Bed, version: &str) -> Result<()> {
    let mut doctor = Command::new(plugin()?);
    doctor.arg("doctor").arg("--kubeconfig").arg(bed.plane.kubeconfig()?);
    let output = tokio::task::spawn_blocking(move || doctor.output()).await??;
    let found = String::from_utf8_lossy(&output.stdout);
    let missing: Vec<&str> = found.lines().filter(|line| line.contains("or its binding is missing")).collect();
    let is_one = missing.len() == 1 && missing[0].contains(LEFT_OUT);
    let is_known = found.contains(&format!("the management cluster runs Kubernetes {version}"));
    ensure!(is_one && is_known, "doctor says {found}{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
