//! The bed with Docker: unmodified Cluster API, its docker infrastructure, machines with systemd, and our manager.
//!
//! The daemon runs inside the world, and stores everything in the world's memory. So its containers, networks and
//! images end with the world, whatever happens to the program, and never meet those of another daemon on this computer.
//! What images are made of is kept in the cache and made outside a world, where there is a network (`Parts::ensure`).

mod daemon;
mod evidence;
mod faults;
mod image;
mod inventory;
mod management;
mod observed;
mod requirements;
pub mod runtime;
mod volumes;
mod workload;

use crate::bed::{admission_policies, crds};
use crate::plane::{AnotherManager, Plane, PlaneOptions};
use crate::process::Process;
use crate::tools::{DockerProvider, Kubernetes, Tools};
use crate::world::World;
use anyhow::Result;
use daemon::Daemon;
use image::Node;
use kube::Client;
use observed::Observed;

pub use faults::Container;
pub use inventory::{Inventory, KINDS};
pub use management::ManagerImage;

pub use workload::Workload;

/// The example that docker's scenarios are made from.
pub const EXAMPLE: &str = "examples/docker/etcd.yaml";

/// The docker infrastructure manager's user.
const CAPD: &str = "capd";

/// What has to exist before a program enters a world, which has no network.
pub struct Parts {
    provider: DockerProvider,
    roots: image::Roots,
}

impl Parts {
    /// Makes what is missing, outside a world. This takes about ten minutes, and only root can do it.
    ///
    /// # Errors
    /// When a part can't be made. The first check is for what Docker needs: its error names everything that this
    /// computer lacks, in one line.
    pub fn prepare(tools: &Tools) -> Result<()> {
        requirements::check()?;
        Node::fetch_released(Kubernetes::Current)?;
        Self::ensure(tools).map(drop)
    }

    /// Makes what [`DockerBed::add_previous_nodes`] needs, outside a world. This takes five minutes the first time.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn prepare_previous_nodes(tools: &Tools) -> Result<()> {
        Node::fetch_released(Kubernetes::Previous)?;
        Node::ensure(Kubernetes::Previous, tools).map(drop)
    }

    fn ensure(tools: &Tools) -> Result<Self> {
        Ok(Self { provider: DockerProvider::ensure(tools)?, roots: image::Roots::ensure(tools)? })
    }
}

/// A world in which clusters of containers can be made.
pub struct DockerBed {
    // Fields are dropped in this order. The observation is first, so that it does not see the other parts end.
    observed: Option<Observed>,
    // The processes are in the order in which they end, so that no manager loses the API server, and nothing loses the
    // daemon.
    manager: Process,
    capd: Process,
    /// The management plane.
    pub plane: Plane,
    daemon: Daemon,
    /// What the daemon has before the first scenario.
    empty: Inventory,
    world: World,
}

impl DockerBed {
    /// Starts everything and waits until it is ready.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn start(world: &World) -> Result<Self> {
        let parts = Parts::ensure(world.tools())?;
        let daemon = Daemon::start(world).await?;
        parts.roots.import(world, &daemon).await?;
        let (crds, policies) = (crds()?, admission_policies()?);
        let options = PlaneOptions { crds, policies, users: vec![CAPD.to_owned()], ..PlaneOptions::default() };
        let mut plane = Plane::start(world, options).await?;
        let capd = AnotherManager { user: CAPD, program: &parts.provider.capd, manifests: &parts.provider.manifests };
        let capd = plane.start_another(world, &capd).await?;
        let manager = faults::start_manager(&plane, world, &[]).await?;
        let empty = daemon.inventory().await?;
        Ok(Self { observed: None, manager, capd, plane, daemon, empty, world: world.clone() })
    }

    /// The world that the bed is in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Adds an image of nodes of the previous release of Kubernetes, and returns that release (with its `v`). The image
    /// has the name of the current release's image, with another version.
    ///
    /// # Errors
    /// When [`Parts::prepare_previous_nodes`] has not made it.
    pub async fn add_previous_nodes(&self) -> Result<String> {
        let node = Node::ensure(Kubernetes::Previous, self.world.tools())?;
        node.import(&self.world, &self.daemon).await?;
        Ok(node.version().to_owned())
    }

    /// A client of the management plane that acts as a person.
    #[must_use]
    pub fn client(&self) -> Client {
        self.plane.client()
    }

    /// Names of all containers, running or not, sorted.
    ///
    /// # Errors
    /// When the daemon does not answer.
    pub async fn containers(&self) -> Result<Vec<String>> {
        Ok(self.daemon.inventory().await?.containers.into_iter().collect())
    }

    /// Runs a command in a container, and returns what it printed.
    ///
    /// # Errors
    /// When it fails; the error has its error output.
    pub async fn exec(&self, container: &str, command: &[&str]) -> Result<String> {
        self.daemon.docker(&[&["exec", container], command].concat()).await
    }

    /// What `docker` prints with these arguments.
    ///
    /// # Errors
    /// When it fails; the error has its error output.
    pub async fn docker(&self, arguments: &[&str]) -> Result<String> {
        self.daemon.docker(arguments).await
    }

    /// Ends the daemon, and with it everything that it has made.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn stop(self) -> Result<()> {
        self.daemon.stop().await
    }
}
