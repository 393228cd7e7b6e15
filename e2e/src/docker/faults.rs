//! Faults of containers and of managers.

mod data;
mod illness;

use super::DockerBed;
use crate::bed::{ADMIN_PORTS, manager_command, programs, ready};
use crate::plane::{Plane, users};
use crate::process::{Process, Signal};
use crate::until::until;
use crate::world::World;
use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use std::time::Duration;

pub use data::Container;

/// Upstream's managers, by the names of their processes.
const UPSTREAM: [&str; 3] = [users::CAPI_CORE, users::CAPI_BOOTSTRAP, users::CAPI_CONTROL_PLANE];
/// How long a machine may take to end all its processes and start again.
const REBOOT: Duration = Duration::from_secs(60);
/// How long our manager may take to end its work.
const END: Duration = Duration::from_secs(15);
/// How long a process may wait for a disk that is busy with other things.
const FREEZE: Duration = Duration::from_secs(30);

impl DockerBed {
    /// Freezes every process of a container. Its address stays, but nothing answers there.
    ///
    /// A process that waits for a disk can't be frozen before the disk has answered, and runc gives up after a fifth of
    /// a second (`unable to freeze`; its `fs/freezer.go`), so docker is asked again and again.
    ///
    /// # Errors
    /// When it does not run, or waits too long for a disk.
    pub async fn pause(&self, container: &str) -> Result<()> {
        self.fault(&format!("{container} is frozen"), &[container]);
        until(format!("{container} is frozen"), FREEZE, async || {
            self.daemon.docker(&["pause", container]).await.map(Some)
        })
        .await
        .map(drop)
    }

    /// Lets a frozen container continue.
    ///
    /// # Errors
    /// When it is not frozen.
    pub async fn unpause(&self, container: &str) -> Result<()> {
        self.fault_is_over(&format!("{container} goes on"), &[container]);
        self.daemon.docker(&["unpause", container]).await.map(drop)
    }

    /// Cuts a machine's power: every process of the container is killed.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&self, container: &str) -> Result<()> {
        self.fault(&format!("{container} is killed"), &[container]);
        self.daemon.docker(&["kill", container]).await.map(drop)
    }

    /// Destroys a machine: its container is removed, with everything in it.
    ///
    /// # Errors
    /// When there is no such container.
    pub async fn destroy(&self, container: &str) -> Result<()> {
        self.fault_for_good(&format!("{container} is destroyed"), &[container]);
        self.daemon.docker(&["rm", "--force", "--volumes", container]).await.map(drop)
    }

    /// Reboots a machine from within: its systemd ends everything, and docker starts the container again by itself,
    /// because the docker infrastructure asks for that. Do not reboot a machine twice within ten seconds: docker would
    /// treat its container as one that does not work.
    ///
    /// # Errors
    /// When the container does not run, or has not begun to reboot.
    pub async fn reboot(&self, container: &str) -> Result<()> {
        let before = self.boot(container).await?;
        self.fault(&format!("{container} reboots"), &[container]);
        // The container may end before it has answered.
        let answer = self.exec(container, &["systemctl", "reboot"]).await;
        let rebooted = until(format!("{container} has rebooted"), REBOOT, async || {
            let now = self.boot(container).await?;
            Ok((now != before).then_some(()))
        });
        rebooted.await.with_context(|| format!("systemctl said {answer:?}"))?;
        self.fault_is_over(&format!("{container} has rebooted"), &[container]);
        Ok(())
    }

    /// Cuts the power of all these machines together, and restores the power of all of them together.
    ///
    /// # Errors
    /// When one does not start.
    pub async fn power_cut(&self, containers: &[String]) -> Result<()> {
        let names: Vec<&str> = containers.iter().map(String::as_str).collect();
        self.fault(&format!("the power of {} is cut", names.join(", ")), &names);
        self.daemon.docker(&[&["kill"], names.as_slice()].concat()).await?;
        try_join_all(names.iter().map(async |name| self.daemon.docker(&["start", name]).await)).await?;
        self.fault_is_over(&format!("{} have power again", names.join(", ")), &names);
        Ok(())
    }

    /// When a container was started, if it runs. This distinguishes one run of it from the next.
    async fn boot(&self, container: &str) -> Result<String> {
        let format = "{{if .State.Running}}{{.State.StartedAt}}{{end}}";
        let started = self.daemon.docker(&["inspect", "--format", format, container]).await?.trim().to_owned();
        ensure!(!started.is_empty(), "{container} does not run");
        Ok(started)
    }

    /// The address that docker has given a container, empty while the container does not run. The machine in it may use
    /// another address: the first one that it was given.
    ///
    /// # Errors
    /// When there is no such container.
    pub async fn address(&self, container: &str) -> Result<String> {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        Ok(self.daemon.docker(&["inspect", "--format", format, container]).await?.trim().to_owned())
    }

    /// The docker infrastructure's manager.
    pub fn capd(&mut self) -> &mut Process {
        &mut self.capd
    }

    /// Our manager.
    pub fn manager(&mut self) -> &mut Process {
        &mut self.manager
    }

    /// Kills our manager; it stays down.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn kill_manager(&mut self) -> Result<()> {
        self.note("our manager is killed");
        self.manager.kill().await
    }

    /// Ends our manager, and starts it again with only these controllers or, if none is given, with all of them. Waits
    /// until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn restart_manager_with(&mut self, controllers: &[&str]) -> Result<()> {
        self.note(&match controllers {
            [] => "our manager is started again".to_owned(),
            some => format!("our manager is started again, with {} only", some.join(", ")),
        });
        if self.manager.is_running()? {
            self.manager.signal(Signal::CONT)?;
            self.manager.terminate(END).await?;
        }
        self.manager = start_manager(&self.plane, &self.world, controllers).await?;
        Ok(())
    }

    /// Restores every process that a scenario may have frozen, killed or started with other flags.
    ///
    /// # Errors
    /// When a process does not run again.
    pub async fn restore(&mut self) -> Result<()> {
        self.restart_manager_with(&[]).await?;
        run(&mut self.capd).await?;
        for name in UPSTREAM {
            run(self.plane.process(name)?).await?;
        }
        Ok(())
    }
}

/// Starts our manager with only these controllers or, if none is given, with all of them. Waits until it is ready.
pub(super) async fn start_manager(plane: &Plane, world: &World, controllers: &[&str]) -> Result<Process> {
    let kubeconfig = plane.kubeconfig_for(users::PROVIDER)?;
    let mut command = manager_command(&programs()?, kubeconfig, world.logs(), 0).arg("--leader-elect=false");
    if !controllers.is_empty() {
        command = command.arg(format!("--controllers={}", controllers.join(",")));
    }
    let mut manager = command.spawn().context("start the manager")?;
    ready(&mut manager, ADMIN_PORTS[0]).await?;
    Ok(manager)
}

/// Lets a process continue, or starts it again if it has ended.
async fn run(process: &mut Process) -> Result<()> {
    if process.is_running()? { process.signal(Signal::CONT) } else { process.restart().await }
}
