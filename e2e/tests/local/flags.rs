//! Flags of etcd that the version of new members does not have.

use crate::departures::replaced;
use crate::load::LowLoad;
use crate::repair::{dies, manifests};
use crate::rolls::{changed, up_to_date};
use crate::shrinks::alone;
use anyhow::{Result, ensure};
use api::etcd_cluster::Health;
use e2e::bed::Bed;
use e2e::tools::Etcd;
use e2e::until::until;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a condition may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the scenario waits to see that nothing is done.
const STEADY: Duration = Duration::from_secs(10);

/// The spec gets a flag that its version of etcd does not have, and a machine dies. No machine would start etcd, so
/// none is made, and the failed member stays, although there is no room for another one before it goes (`maxSurge: 0`).
/// Once the spec is right, the member is replaced at once, by the first Machine that is made.
pub(crate) async fn of_another_version(bed: &mut Bed) -> Result<()> {
    let version = Etcd::ALL[0].version()?;
    let in_place = |etcd: &mut Value| {
        etcd["spec"]["etcdadmConfigSpec"]["version"] = json!(version);
        etcd["spec"]["rolloutStrategy"] = json!({"rollingUpdate": {"maxSurge": 0}});
    };
    let handle = alone(bed, manifests("flags-other", 3)?.with("EtcdCluster", in_place)).await?;
    let names = handle.etcd_machines().await?;
    let load = LowLoad::begin(bed, &handle).await?;
    let flag = json!({"name": "feature-gates", "value": "InitialCorruptCheck=true"});
    changed(&handle, &json!({"etcdadmConfigSpec": {"etcd": {"extraFlags": [flag]}}})).await?;
    until("the flag is refused", PATIENCE, async || {
        let condition = up_to_date(&handle.status().await?)?;
        let says_so = ["extraFlags[0]", "and no Machine is made"].iter().all(|part| condition.2.contains(part));
        ensure!(condition.1 == "UnsupportedVersionChange" && says_so, "{condition:?}");
        Ok(Some(()))
    })
    .await?;

    dies(bed, &handle, &names[1]).await?;
    until("a member is unhealthy", PATIENCE, async || {
        let members = handle.status().await?.members;
        Ok(members.iter().any(|member| member.health == Health::Unhealthy).then_some(()))
    })
    .await?;
    tokio::time::sleep(STEADY).await;
    let machines = handle.etcd_machines().await?;
    ensure!(machines == names, "the Machines are {machines:?}");
    let members = handle.status().await?.members;
    ensure!(members.len() == 3, "the members are {members:?}");

    changed(&handle, &json!({"etcdadmConfigSpec": {"etcd": null}})).await?;
    let machines = replaced(bed, &handle, &names[1]).await?;
    ensure!(machines.iter().any(|name| name == "demo-etcd-3"), "the Machines are {machines:?}");
    load.judged().await
}
