//! Cluster API in a cluster other than the plane. Its managers are processes of this world all the same.

use std::path::Path;

use anyhow::Result;

use super::components::MANAGERS;
use super::{AnotherManager, Manifests, Plane, client, components, health, objects, webhooks_in_force};
use crate::process::{Command, Process};
use crate::world::{ADDRESS, World};

/// The managers' numbers, which determine their ports. The numbers below are those of the plane's own managers.
const PORTS: [u16; 3] = [4, 5, 6];
const ANOTHERS_PORTS: u16 = 7;

impl Plane {
    /// Installs Cluster API, and one more manager, in the cluster that the kubeconfig leads to, and waits until their
    /// webhooks work. That cluster's API server has to reach this world at [`ADDRESS`]. The managers end when the
    /// returned processes are dropped.
    ///
    /// # Errors
    /// When one does not become ready, or the API server refuses one of its objects.
    pub async fn start_elsewhere(
        &self,
        world: &World,
        kubeconfig: &Path,
        another: &AnotherManager<'_>,
    ) -> Result<Vec<Process>> {
        let client = client(kubeconfig).await?;
        let (mut commands, mut webhooks) = (Vec::new(), Vec::new());
        for (manager, number) in MANAGERS.iter().zip(PORTS) {
            let ports = self.ports.manager(number);
            let file = world.tools().cluster_api.manifests.join(manager.manifests);
            webhooks.extend(self.install(&client, &file, ports.webhook).await?);
            let name = format!("{}-elsewhere", manager.user);
            let command = components::manager_of(world, manager, &name, kubeconfig, &ports, &self.certificates);
            commands.push((command, ports.health));
        }
        let ports = self.ports.manager(ANOTHERS_PORTS);
        webhooks.extend(self.install(&client, another.manifests, ports.webhook).await?);
        let command = Command::new(format!("{}-elsewhere", another.user), another.program, world.logs());
        commands.push((components::capi_manager(command, kubeconfig, &ports, &self.certificates), ports.health));

        let mut processes = Vec::new();
        for (command, health_port) in commands {
            let mut process = command.spawn()?;
            health::http_ready(&mut process, health_port, "/readyz").await?;
            processes.push(process);
        }
        objects::apply_all(&client, &webhooks).await?;
        webhooks_in_force(&client).await?;
        Ok(processes)
    }

    /// Applies a manager's namespaces and CRDs, and returns its webhook configurations, which are applied when it is
    /// ready.
    async fn install(&self, client: &kube::Client, file: &Path, webhook_port: u16) -> Result<Vec<serde_json::Value>> {
        let manifests = Manifests::read(file, ADDRESS, webhook_port, &self.authority)?;
        objects::apply_all(client, &manifests.namespaces).await?;
        objects::apply_crds(client, &manifests.crds).await?;
        Ok(manifests.webhooks)
    }
}
