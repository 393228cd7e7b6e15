//! A second management plane beside the bed's, for the same machines: what is moved goes there.

use super::{ADMIN_PORTS, Bed, Product, control_plane_stub, local_infrastructure, manager_command, ready};
use crate::evidence::Evidence;
use crate::plane::{Plane, PlaneOptions, users};
use crate::process::Process;
use anyhow::Result;
use std::path::PathBuf;

/// A management plane with a manager of ours and the controllers of LocalCluster and LocalMachine. Dropping it ends them;
/// the machines go on.
pub struct SecondPlane {
    // First: nobody should miss the API server.
    _manager: Process,
    _local_infrastructure: Process,
    /// The management plane.
    pub plane: Plane,
    logs: PathBuf,
}

impl SecondPlane {
    /// Keeps every object beside the logs of this plane, among which the requests are: the bed keeps what the first
    /// plane has.
    ///
    /// # Errors
    /// With what could not be kept; the rest is.
    pub async fn keep_evidence(&self) -> Result<()> {
        let mut evidence = Evidence::default();
        evidence.of_objects(&self.plane, &self.logs).await;
        evidence.end()
    }
}

impl Bed {
    /// Starts one, with its logs in a directory of its own. Its manager is the bed's second one: that must not run.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn second_plane(&self) -> Result<SecondPlane> {
        let world = self.world().with_logs("second-plane")?;
        let Product { programs, mut crds, policies } = Product::present()?;
        crds.push(control_plane_stub::crd());
        let options = PlaneOptions { crds, policies, beside: true, ..PlaneOptions::default() };
        let plane = Plane::start(&world, options).await?;
        // The image that the bed has made.
        let infrastructure = local_infrastructure(&world, &plane, &world.state("image")?)?.spawn()?;
        let kubeconfig = plane.kubeconfig_for(users::PROVIDER)?;
        let command = manager_command(&programs, kubeconfig, world.logs(), 1).arg("--leader-elect=false");
        let mut manager = command.spawn()?;
        ready(&mut manager, ADMIN_PORTS[1]).await?;
        let logs = world.logs().to_owned();
        Ok(SecondPlane { _manager: manager, _local_infrastructure: infrastructure, plane, logs })
    }
}
