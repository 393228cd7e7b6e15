//! The core managers of every supported release of Cluster API, and the oldest tested Kubernetes of a management
//! cluster. All other scenarios run on one release of each.

mod older_kubernetes;

pub(crate) use older_kubernetes::kubernetes_1_33;

use crate::{CLEAR, bring_up, deletion, gitops, marked};
use anyhow::Result;
use e2e::bed::Bed;
use e2e::tools::{ManagementKubernetes, Release};

/// The release of Cluster API that a scenario is about, if it is about one.
pub(crate) fn of(scenario: &str) -> Option<Release> {
    match scenario {
        "releases::v1_12" => Some(Release::V1_12),
        "releases::v1_13" => Some(Release::V1_13),
        "releases::v1_14_2" => Some(Release::V1_14_2),
        _ => None,
    }
}

/// The Kubernetes of the management plane that a scenario runs on.
pub(crate) fn kubernetes_of(scenario: &str) -> ManagementKubernetes {
    match scenario {
        "releases::kubernetes_1_33" => ManagementKubernetes::V1_33,
        _ => ManagementKubernetes::V1_36,
    }
}

pub(crate) async fn v1_12(bed: &mut Bed) -> Result<()> {
    life(bed).await
}

pub(crate) async fn v1_13(bed: &mut Bed) -> Result<()> {
    life(bed).await
}

pub(crate) async fn v1_14_2(bed: &mut Bed) -> Result<()> {
    life(bed).await
}

/// What depends on Cluster API the most: a cluster comes up and is handed over, its manifests are applied again, a
/// Machine is replaced because a MachineHealthCheck marks it, and everything is deleted.
async fn life(bed: &mut Bed) -> Result<()> {
    bring_up::three_members(bed).await?;
    bed.clear(CLEAR).await?;
    gitops::same_manifest_again(bed).await?;
    bed.clear(CLEAR).await?;
    marked::by_a_health_check(bed).await?;
    bed.clear(CLEAR).await?;
    deletion::when_up(bed).await
}
