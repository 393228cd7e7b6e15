//! A second management plane beside the bed's, for the same machines: the target of a move.

use super::{ADMIN_PORTS, Bed, Product, control_plane_stub, local_infrastructure, manager_command, ready};
use crate::evidence::Evidence;
use crate::plane::{Plane, PlaneOptions, users};
use crate::process::Process;
use anyhow::Result;
use std::path::PathBuf;

/// A management plane with a manager of ours and the controllers of LocalCluster and LocalMachine. Dropping it ends
/// them. The machines keep running.
pub struct SecondPlane {
    // First, so that no manager loses its API server when this is dropped.
    _manager: Process,
    _local_infrastructure: Process,
    /// The management plane.
    pub plane: Plane,
    logs: PathBuf,
}

impl SecondPlane {
    /// Keeps every object, beside the logs of this plane. The requests are among these logs. The bed keeps the evidence
    /// of the first plane.
    ///
    /// # Errors
    /// With the parts that could not be kept. The other parts are kept.
    pub async fn keep_evidence(&self) -> Result<()> {
        let mut evidence = Evidence::default();
        evidence.of_objects(&self.plane, &self.logs).await;
        evidence.end()
    }
}

impl Bed {
    /// Starts a second plane, with its logs in a separate directory. Its manager uses the port of the bed's manager 1,
    /// which must not run.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn second_plane(&self) -> Result<SecondPlane> {
        let world = self.world().with_logs("second-plane")?;
        let Product { programs, mut crds, policies } = Product::present(&world)?;
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
