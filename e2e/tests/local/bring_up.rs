//! From one apply to an unpaused control plane.

use anyhow::{Result, ensure};
use e2e::bed::{Bed, Look, Manifests};
use std::time::Duration;

/// What a cluster of three may take here, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(90);

/// The main road: three members come up as voters, the control plane gets endpoints and certificates, and only then
/// makes its first Machine.
pub(crate) async fn three_members(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    Look::make_namespace(&client, "three").await?;
    let manifests = Manifests::new("three", "demo")?;
    let look = Look::at(&client, &manifests);
    manifests.apply(&client).await?;

    let status = look.until_ready(PATIENCE).await?;
    ensure!(look.control_plane_machines().await?.len() <= 1);
    ensure!(status.members.len() == 3 && status.ready_replicas == 3, "{:?}", status.members);
    ensure!(look.etcd_machines().await? == ["demo-etcd-0", "demo-etcd-1", "demo-etcd-2"]);

    let data = look.until_control_plane_data(PATIENCE).await?;
    let endpoints: Vec<String> = status.endpoints.split(',').map(str::to_owned).collect();
    ensure!(look.control_plane_endpoints().await? == endpoints, "the control plane has the endpoints of the status");
    ensure!(!look.control_plane_is_paused().await?, "the control plane is unpaused");
    for endpoint in &endpoints {
        ensure!(data.contains(endpoint.as_str()), "{endpoint} is in the first Machine's bootstrap data");
    }
    for (secret, key) in
        [("demo-etcd", "tls.crt"), ("demo-apiserver-etcd-client", "tls.crt"), ("demo-apiserver-etcd-client", "tls.key")]
    {
        let value = look.secret(secret, key).await?;
        let line = value.lines().nth(1).unwrap_or_default();
        ensure!(data.contains(line), "{key} of {secret} is in the first Machine's bootstrap data");
    }
    Ok(())
}
