//! One more manager like Cluster API's, on a running plane.

use std::path::Path;

use anyhow::Result;

use super::{Manifests, Plane, components, health, objects, ports};
use crate::process::{Command, Process};
use crate::world::World;

/// A manager that a plane does not start by itself.
pub struct AnotherManager<'a> {
    /// Its user, one of [`super::PlaneOptions::users`], and the name of its process and log.
    pub user: &'a str,
    /// The program.
    pub program: &'a Path,
    /// Its namespaces, CRDs and webhook configurations: a JSON list.
    pub manifests: &'a Path,
}

impl Plane {
    /// Applies the CRDs of one more manager, starts it, and applies its webhook configurations when it is ready. It
    /// ends when the returned process is dropped.
    ///
    /// # Errors
    /// When it does not become ready, or the API server refuses one of its objects.
    pub async fn start_another(&mut self, world: &World, manager: &AnotherManager<'_>) -> Result<Process> {
        let ports = self.ports.manager(3);
        let manifests = Manifests::read(manager.manifests, ports::LOOPBACK, ports.webhook, &self.authority)?;
        objects::apply_all(&self.client, &manifests.namespaces).await?;
        self.apply_crds(&manifests.crds).await?;
        let command = Command::new(manager.user, manager.program, world.logs());
        let kubeconfig = self.users.kubeconfig(manager.user)?;
        let mut process = components::capi_manager(command, kubeconfig, &ports, &self.certificates).spawn()?;
        health::http_ready(&mut process, ports.health, "/readyz").await?;
        objects::apply_all(&self.client, &manifests.webhooks).await?;
        Ok(process)
    }
}
