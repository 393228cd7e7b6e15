//! Everything that a cluster needs to come up, in one world: a management plane, machines and this project's manager.

pub mod clock;
mod cluster_handle;
mod clusters;
mod control_plane_stub;
pub mod data;
mod events;
mod evidence;
pub mod illness;
mod images;
mod inventory;
pub mod lossy_disk;
mod members;
mod metrics;
mod observed;
mod second;
mod states;

use crate::observer::Observation;
use crate::plane::{Plane, PlaneOptions, users};
use crate::process::{Command, Process};
use crate::simulated::Frozen;
use crate::tools::Earlier;
use crate::until::until;
use crate::world::{ADDRESS, BRIDGE, PREFIX_LENGTH, World};
use anyhow::{Context, Result, ensure};
use kube::Client;
use local_infrastructure::machine::{Machine, Machines};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use cluster_handle::{ClusterHandle, first_address};
pub use clusters::{EXAMPLE, Manifests};
pub use control_plane_stub::{Behaviour, ControlPlaneStub, Seen};
use images::Product;
pub use images::{admission_policies, crds, machine_image, plugin, programs};
pub use members::{Member, Membership};
pub use metrics::{metrics, reader, set_log_level};
pub use observed::ObservedServers;
pub use second::SecondPlane;
pub use states::{States, never_ready_again};

/// Ports of the managers' admin servers, by the manager's index.
pub(crate) const ADMIN_PORTS: [u16; 2] = [9700, 9701];
/// The flag that says where managers with leader election keep their lease.
const LEASE: &str = "--leader-election-namespace=default";
/// How long a manager may take to end after it is asked to. It finishes the work that it has begun.
const ENDS: Duration = Duration::from_secs(30);

/// A world in which clusters can be made.
pub struct Bed {
    // Fields are dropped in this order. The observation is first, so that it does not see the other parts end.
    observed: Option<Observation>,
    // The managers are next, so that no manager loses its API server when the bed is dropped.
    managers: [Option<Process>; 2],
    local_infrastructure: Process,
    frozen: Option<Frozen>,
    /// The management plane.
    pub plane: Plane,
    /// The machines, on which scenarios make faults.
    pub machines: Machines,
    world: World,
    /// How long the start took.
    pub started_in: Duration,
}

impl Bed {
    /// Starts everything, with one manager, and waits until all of it is ready.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn start(world: &World) -> Result<Self> {
        let mut bed = Self::without_manager(world).await?;
        bed.start_manager(0).await?;
        Ok(bed)
    }

    /// Like `Bed::start`, with [simulated](crate::simulated) machines, for many clusters. The faults of
    /// [`Bed::machines`] do not work on them.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn simulated(world: &World) -> Result<Self> {
        let state = world.state("simulated")?;
        fs::remove_dir_all(&state).context("remove an earlier bed's state")?;
        let frozen = Frozen::at(&state)?;
        let mut bed = Self::with(world, Product::present(world)?, |plane| {
            let program = programs()?.join("simulated-infrastructure");
            let command = Command::new("simulated-infrastructure", program, world.logs());
            Ok(command
                .arg("--kubeconfig")
                .arg(plane.kubeconfig_for(users::LOCAL_INFRASTRUCTURE)?)
                .arg("--state-dir")
                .arg(&state))
        })
        .await?;
        bed.frozen = Some(frozen);
        bed.start_manager(0).await?;
        Ok(bed)
    }

    /// Starts a bed with machines made of kernel namespaces, and without a manager of ours.
    ///
    /// # Errors
    /// When a part does not start.
    pub async fn without_manager(world: &World) -> Result<Self> {
        Self::of_namespaces(world, Product::present(world)?).await
    }

    /// Starts a bed with an earlier state of this project, which is what an upgrade starts from: its CRDs, its
    /// policies, its etcdadm on the machines, and its manager as manager 0, which holds the lease.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn of_earlier(world: &World, earlier: &Earlier) -> Result<Self> {
        let mut bed = Self::of_namespaces(world, Product::earlier(earlier)?).await?;
        let kubeconfig = bed.plane.kubeconfig_for(users::PROVIDER)?;
        let command = manager_command(&earlier.programs(), kubeconfig, world.logs(), 0).arg(LEASE);
        bed.run_manager(0, command).await?;
        Ok(bed)
    }

    /// Starts a bed with machines made of kernel namespaces, and without a manager.
    async fn of_namespaces(world: &World, product: Product) -> Result<Self> {
        let image = images::machine_image_with(world, &product.programs.join("etcdadm"))?;
        Self::with(world, product, |plane| local_infrastructure(world, plane, &image)).await
    }

    /// Starts a plane, and the infrastructure's controllers with the command that `infrastructure` returns.
    async fn with(
        world: &World,
        product: Product,
        infrastructure: impl FnOnce(&Plane) -> Result<Command>,
    ) -> Result<Self> {
        let begun = Instant::now();
        let machines = Machines::open(world.state("machines")?);
        // Machines outlive the bed that made them: remove those of an earlier bed of this world.
        for machine in machines.list()? {
            machine.destroy()?;
        }
        let Product { mut crds, policies, .. } = product;
        crds.push(control_plane_stub::crd());
        let users = vec![control_plane_stub::USER.to_owned()];
        let plane = Plane::start(world, PlaneOptions { crds, policies, users, ..PlaneOptions::default() }).await?;
        let local_infrastructure = infrastructure(&plane)?.spawn()?;
        let started_in = begun.elapsed();
        Ok(Self {
            observed: None,
            managers: [None, None],
            local_infrastructure,
            frozen: None,
            plane,
            machines,
            world: world.clone(),
            started_in,
        })
    }

    /// The record of which simulated machines are frozen. `None` if the machines are made of kernel namespaces.
    #[must_use]
    pub fn frozen(&self) -> Option<&Frozen> {
        self.frozen.as_ref()
    }

    /// A client of the management plane that acts as a person.
    #[must_use]
    pub fn client(&self) -> Client {
        self.plane.client()
    }

    /// kubectl, with a cache of this plane alone. By default, what it has learned from one API server also counts for
    /// every other one at the same address, such as that of another release.
    ///
    /// # Errors
    /// Never: a plane has a kubeconfig.
    pub fn kubectl(&self) -> Result<std::process::Command> {
        let mut kubectl = std::process::Command::new(&self.world.tools().kubectl);
        kubectl.arg("--cache-dir").arg(self.plane.kubeconfig()?.with_file_name("kubectl-cache"));
        Ok(kubectl)
    }

    /// The machines with these names, in this order.
    ///
    /// # Errors
    /// When one does not exist.
    pub fn machines_of<'n>(
        &self,
        namespace: &str,
        names: impl IntoIterator<Item = &'n String>,
    ) -> Result<Vec<Machine>> {
        names.into_iter().map(|name| anyhow::Ok(self.machines.get(namespace, name)?)).collect()
    }

    /// The world that the bed is in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Starts manager `index` (0 or 1) without leader election, and waits until it is ready. Both managers may run at
    /// the same time.
    ///
    /// # Errors
    /// When it ends or does not become ready.
    pub async fn start_manager(&mut self, index: usize) -> Result<()> {
        self.start_manager_as(index, users::PROVIDER, &[]).await
    }

    /// Like [`Bed::start_manager`], as another user and with further flags: for one of several managers that share the
    /// clusters.
    ///
    /// # Errors
    /// As [`Bed::start_manager`], and when there is no such user.
    pub async fn start_manager_as(&mut self, index: usize, user: &str, flags: &[&str]) -> Result<()> {
        let kubeconfig = self.plane.kubeconfig_for(user)?;
        let command = manager_command(&programs()?, kubeconfig, self.world.logs(), index);
        self.run_manager(index, command.arg("--leader-elect=false").args(flags)).await
    }

    /// Like [`Bed::start_manager`], with leader election. The manager is ready before it holds the lease, and works
    /// only once it holds it.
    ///
    /// # Errors
    /// As [`Bed::start_manager`].
    pub async fn start_manager_with_lease(&mut self, index: usize) -> Result<()> {
        let command = self.manager_command(index)?.arg(LEASE);
        self.run_manager(index, command).await
    }

    async fn run_manager(&mut self, index: usize, command: Command) -> Result<()> {
        self.note(&format!("manager {index} starts"));
        let mut process = command.spawn()?;
        ready(&mut process, ADMIN_PORTS[index]).await?;
        self.managers[index] = Some(process);
        Ok(())
    }

    /// The command of manager `index`, for scenarios that add flags.
    ///
    /// # Errors
    /// When the program has not been built.
    pub fn manager_command(&self, index: usize) -> Result<Command> {
        let kubeconfig = self.plane.kubeconfig_for(users::PROVIDER)?;
        Ok(manager_command(&programs()?, kubeconfig, self.world.logs(), index))
    }

    /// A running manager.
    ///
    /// # Errors
    /// When it was not started.
    pub fn manager(&mut self, index: usize) -> Result<&mut Process> {
        self.managers[index].as_mut().with_context(|| format!("manager {index} was not started"))
    }

    /// Kills a manager with SIGKILL and starts it again at once, without waiting until it is ready.
    ///
    /// # Errors
    /// When it was not started, or cannot be started again.
    pub async fn kill_and_restart_manager(&mut self, index: usize) -> Result<()> {
        self.note(&format!("manager {index} is killed, and starts again"));
        self.manager(index)?.restart().await
    }

    /// Kills a manager with SIGKILL; it stays down.
    ///
    /// # Errors
    /// When it was not started.
    pub async fn kill_manager(&mut self, index: usize) -> Result<()> {
        self.note(&format!("manager {index} is killed"));
        self.manager(index)?.kill().await?;
        self.managers[index] = None;
        Ok(())
    }

    /// Asks a manager to end, as an upgrade does, and waits until it has ended. The manager releases its lease.
    ///
    /// # Errors
    /// When it was not started, or does not end cleanly.
    pub async fn end_manager(&mut self, index: usize) -> Result<()> {
        self.note(&format!("manager {index} is told to end"));
        let ended = self.manager(index)?.terminate(ENDS).await?;
        ensure!(ended.success(), "manager {index} ended with {ended}");
        self.managers[index] = None;
        Ok(())
    }

    /// The controllers of LocalCluster and LocalMachine.
    pub fn local_infrastructure(&mut self) -> &mut Process {
        &mut self.local_infrastructure
    }

    /// What one manager serves at `path`, such as `/metrics`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn admin(&self, index: usize, path: &str) -> Result<String> {
        get(ADMIN_PORTS[index], path).await
    }
}

/// The command of the controllers of LocalCluster and LocalMachine. The controllers of several planes share the
/// machines.
fn local_infrastructure(world: &World, plane: &Plane, image: &Path) -> Result<Command> {
    let program = programs()?.join("local-infrastructure");
    Ok(Command::new("local-infrastructure", program, world.logs())
        .arg("run")
        .arg("--kubeconfig")
        .arg(plane.kubeconfig_for(users::LOCAL_INFRASTRUCTURE)?)
        .arg("--state-dir")
        .arg(world.state("machines")?)
        .arg("--image-dir")
        .arg(image)
        .args(["--bridge", BRIDGE, "--subnet", &format!("{}/{PREFIX_LENGTH}", subnet())]))
}

/// The command of manager `index`.
pub(crate) fn manager_command(programs: &Path, kubeconfig: &Path, logs: &Path, index: usize) -> Command {
    Command::new(format!("manager-{index}"), programs.join("manager"), logs)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--log-format", "json", "--log-level", "info"])
        .arg("--admin-address")
        .arg(format!("127.0.0.1:{}", ADMIN_PORTS[index]))
}

/// Waits until a manager is ready.
pub(crate) async fn ready(process: &mut Process, port: u16) -> Result<()> {
    let log = process.log().to_owned();
    until(format!("{} is ready (log: {})", process.name(), log.display()), Duration::from_secs(20), async || {
        if !process.is_running()? {
            anyhow::bail!("it has ended: {}", last_lines(&log));
        }
        Ok(get(port, "/readyz").await.is_ok().then_some(()))
    })
    .await
}

/// What a program in this world serves on a port of loopback, over IPv4.
///
/// # Errors
/// When it does not answer with 200.
pub async fn get(port: u16, path: &str) -> Result<String> {
    get_from(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), path).await
}

/// What a program serves at any address.
///
/// # Errors
/// When it does not answer with 200.
pub async fn get_from(address: SocketAddr, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{path} answers {}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// The end of a log, for error messages.
fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// The network of the world's bridge.
fn subnet() -> String {
    let octets: Vec<&str> = ADDRESS.split('.').collect();
    format!("{}.{}.0.0", octets[0], octets[1])
}

/// A file of this repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(|root| root.join(path)).unwrap_or_default()
}
