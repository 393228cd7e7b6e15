//! A later version of the provider, as its users install it, beside a cluster that is in use.

use super::{LABEL, PATIENCE, TAG, configure, is_installed};
use crate::upgrades::State;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle};
use e2e::clusterctl::Setup;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use std::fs;
use std::time::Duration;

/// The tag of the image that the later version installs.
pub(super) const LATER_TAG: &str = "1.2.4";
/// How long the scenario watches the new manager for changes that it must not make.
const WATCHED: Duration = Duration::from_secs(3);

/// A later version appears in the repository, with the same files. clusterctl offers it, installs it in place of the
/// first one, and then has nothing more to offer. The cluster stays as it is. No manager runs during the upgrade,
/// because clusterctl ends the earlier one first.
pub(super) async fn upgrade(setup: &Setup, bed: &mut Bed, handle: &ClusterHandle) -> Result<()> {
    let later = later_version(setup)?;
    copy(setup, &later)?;
    let before = Before::of(setup, bed, handle, &later).await?;
    is_installed(&bed.plane, TAG).await.context("a plan has changed something")?;
    bed.kill_manager(0).await?;
    let upgraded = apply(setup, bed, &later).await;
    bed.start_manager(0).await?;
    upgraded?;
    handle.until_ready(PATIENCE).await?;
    tokio::time::sleep(WATCHED).await;
    before.is_kept(bed, handle).await
}

/// The version after that of the setup.
pub(super) fn later_version(setup: &Setup) -> Result<String> {
    let (series, patch) = setup.version().rsplit_once('.').context("a version has three numbers")?;
    Ok(format!("{series}.{}", patch.parse::<u32>().context("a version has numbers")? + 1))
}

/// Copies the files of the release to the directory of the next version. The two versions differ only in the configured
/// image.
fn copy(setup: &Setup, later: &str) -> Result<()> {
    let (released, directory) = (setup.released(), setup.released().with_file_name(later));
    fs::create_dir_all(&directory)?;
    for file in fs::read_dir(released)? {
        let file = file?;
        fs::copy(file.path(), directory.join(file.file_name()))?;
    }
    Ok(())
}

/// What an upgrade must leave as it is.
pub(super) struct Before {
    state: State,
    etcd: (Option<String>, Option<i64>),
    crds: Vec<(String, Option<String>)>,
}

impl Before {
    /// Configures the image of the later version, checks that clusterctl offers this version, and reads what there is.
    pub(super) async fn of(setup: &Setup, bed: &Bed, handle: &ClusterHandle, later: &str) -> Result<Self> {
        configure(setup, LATER_TAG)?;
        let offered = planned(setup, bed).await?;
        ensure!(offered == (setup.version().to_owned(), later.to_owned()), "before the upgrade: {offered:?}");
        Ok(Self {
            state: State::of(bed, handle).await?,
            etcd: identity(handle).await?,
            crds: installed_crds(bed).await?,
        })
    }

    /// Checks that the upgrade has changed none of it.
    pub(super) async fn is_kept(&self, bed: &Bed, handle: &ClusterHandle) -> Result<()> {
        let changed = self.state.changed(&State::of(bed, handle).await?);
        ensure!(changed.is_empty(), "the upgrade has changed {changed:#?}");
        ensure!(identity(handle).await? == self.etcd, "the EtcdCluster is another one, or has another spec");
        let crds = installed_crds(bed).await?;
        ensure!(crds == self.crds && crds.len() == 3, "the CRDs were {:?}, and are {crds:?}", self.crds);
        Ok(())
    }
}

/// Has clusterctl install the later version, and checks that it then has nothing more to offer.
pub(super) async fn apply(setup: &Setup, bed: &Bed, later: &str) -> Result<()> {
    let provider = format!("etcdadm:{later}");
    setup.run(bed.plane.kubeconfig()?, &["upgrade", "apply", "--bootstrap", &provider]).await?;
    is_installed(&bed.plane, LATER_TAG).await?;
    let now = planned(setup, bed).await?;
    ensure!(now == (later.to_owned(), "Already up to date".to_owned()), "after the upgrade: {now:?}");
    Ok(())
}

/// The provider's version, and the version that `upgrade plan` offers.
async fn planned(setup: &Setup, bed: &Bed) -> Result<(String, String)> {
    let plan = setup.run(bed.plane.kubeconfig()?, &["upgrade", "plan"]).await?;
    let line = plan.lines().find(|line| line.starts_with("bootstrap-etcdadm "));
    // Name, namespace and type come first.
    let mut words = line.with_context(|| format!("not a word about it:\n{plan}"))?.split_whitespace().skip(3);
    let version = words.next().context("no version")?.to_owned();
    Ok((version, words.collect::<Vec<_>>().join(" ")))
}

/// UID and generation of the EtcdCluster.
async fn identity(handle: &ClusterHandle) -> Result<(Option<String>, Option<i64>)> {
    let etcd = handle.etcds().get(&handle.etcd).await?;
    Ok((etcd.uid(), etcd.metadata.generation))
}

/// Names and UIDs of the provider's CRDs.
async fn installed_crds(bed: &Bed) -> Result<Vec<(String, Option<String>)>> {
    let crds: Api<CustomResourceDefinition> = Api::all(bed.client());
    let crds = crds.list(&ListParams::default().labels(LABEL)).await?.items;
    Ok(crds.iter().map(|crd| (crd.name_any(), crd.uid())).collect())
}
