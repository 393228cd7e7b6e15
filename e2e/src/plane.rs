//! The management plane: a real API server with unmodified Cluster API managers, as plain processes in a world.

mod another;
mod audit;
mod components;
mod elsewhere;
mod health;
mod lasting;
mod objects;
mod pki;
mod ports;
pub mod users;
pub mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use futures::try_join;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

pub use another::AnotherManager;
pub use audit::{Mark, Request, Requests};
use components::MANAGERS;
pub use lasting::LastingPlane;
pub(crate) use lasting::take_left;
use pki::Pki;
use ports::Ports;
use users::Users;

use crate::apply::api_for;
use crate::evidence::Evidence;
use crate::process::Process;
use crate::until::until;
use crate::world::World;

/// What a plane is made of, in addition to the API server, garbage collection and namespaces.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    /// Whether Cluster API's managers run. Without them a plane is ready in half the time.
    pub cluster_api: bool,
    /// Our CRDs. If they are given here, every manager knows them from its start.
    pub crds: Vec<Value>,
    /// Our admission policies, with their bindings.
    pub policies: Vec<Value>,
    /// Users in addition to those in [`users`], each with a kubeconfig.
    pub users: Vec<String>,
    /// Whether there is another plane in the same world. This plane then has other ports, and a directory of its own.
    pub beside: bool,
}

impl Default for PlaneOptions {
    fn default() -> Self {
        Self { cluster_api: true, crds: Vec::new(), policies: Vec::new(), users: Vec::new(), beside: false }
    }
}

/// A running management plane. Dropping it kills its processes.
pub struct Plane {
    client: Client,
    users: Users,
    audit_log: PathBuf,
    managers: Vec<Process>,
    controller_manager: Process,
    authority: String,
    certificates: PathBuf,
    ports: Ports,
    apiserver: Process,
    // Last, so that it is killed last and no process's final request fails for want of it.
    etcd: Process,
    timings: Vec<(&'static str, Duration)>,
}

impl Plane {
    /// Starts a plane in `world`, with its logs there, and waits until everything in it works, webhooks included.
    ///
    /// An earlier plane of the same world must have been stopped or dropped, except one [beside](PlaneOptions::beside)
    /// this plane. The data of the earlier plane is deleted.
    ///
    /// # Errors
    /// When a process ends or does not become ready; the error names its log.
    pub async fn start(world: &World, options: PlaneOptions) -> Result<Self> {
        let mut clock = Stopwatch::start();
        let ports = Ports::of(options.beside);
        let mut listeners = vec![ports.etcd, ports.etcd_peer, ports.apiserver, ports.controller_manager];
        let of_managers = MANAGERS.iter().map(|manager| ports.manager(manager.number));
        listeners.extend(of_managers.flat_map(|manager| [manager.webhook, manager.health]));
        ports::wait_until_free(&listeners).await?;
        let name = if options.beside { "plane-beside" } else { "plane" };
        fs::remove_dir_all(world.state(name)?).context("remove an earlier plane's data")?;
        let directory = world.state(name)?;

        let mut etcd = components::etcd(world, &directory.join("etcd"), ports).spawn()?;
        let pki = Pki::create(&directory.join("pki"))?;
        let users = Users::create(&directory, &pki, &options.users, ports.apiserver)?;
        let audit_policy = directory.join("audit-policy.json");
        fs::write(&audit_policy, audit::POLICY).context("write the audit policy")?;
        let audit_log = world.logs().join("audit.log");
        health::http_ready(&mut etcd, ports.etcd, "/health").await?;
        clock.lap("etcd");

        let place = (world, ports);
        let mut apiserver = components::apiserver(place, &pki, &users, &audit_policy, &audit_log).spawn()?;
        let client = client(users.kubeconfig(users::ADMIN)?).await?;
        health::apiserver_answers(&mut apiserver, &client).await?;
        clock.lap("kube-apiserver");

        let mut crds = options.crds;
        let (mut namespaces, mut webhooks) = (Vec::new(), Vec::new());
        if options.cluster_api {
            for manager in &MANAGERS {
                let file = world.tools().cluster_api.manifests.join(manager.manifests);
                let port = ports.manager(manager.number).webhook;
                let manifests = Manifests::read(&file, ports::LOOPBACK, port, &pki.authority)?;
                namespaces.extend(manifests.namespaces);
                crds.extend(manifests.crds);
                webhooks.extend(manifests.webhooks);
            }
        }
        // The API server is not quite ready yet, but does not need to be for this.
        let ready = health::apiserver_ready(&mut apiserver, &client);
        let namespaces = objects::apply_all(&client, &namespaces);
        try_join!(ready, namespaces, objects::apply_crds(&client, &crds), default_namespace(&client))?;
        clock.lap("CRDs");

        let controller_manager = components::controller_manager(place, &pki, &users)?.spawn()?;
        let mut managers = Vec::new();
        if options.cluster_api {
            for manager in &MANAGERS {
                managers.push(components::manager(place, manager, &users, &directory.join("pki"))?.spawn()?);
            }
        }
        let processes = managers.iter_mut().zip(&MANAGERS);
        let ready = processes
            .map(|(process, manager)| health::http_ready(process, ports.manager(manager.number).health, "/readyz"));
        try_join_all(ready).await?;
        clock.lap("managers");

        objects::apply_all(&client, &webhooks).await?;
        objects::apply_all(&client, &options.policies).await?;
        if options.cluster_api {
            webhooks_in_force(&client).await?;
        }
        clock.lap("webhooks");
        Ok(Self {
            client,
            users,
            audit_log,
            managers,
            controller_manager,
            authority: pki.authority,
            certificates: directory.join("pki"),
            ports,
            apiserver,
            etcd,
            timings: clock.laps,
        })
    }

    /// A client that acts as a person ([`users::ADMIN`]).
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of [`users::ADMIN`].
    ///
    /// # Errors
    /// As for [`Plane::kubeconfig_for`], so never for this user.
    pub fn kubeconfig(&self) -> Result<&Path> {
        self.users.kubeconfig(users::ADMIN)
    }

    /// The kubeconfig of one of [`users`] or of [`PlaneOptions::users`]. Each may do everything; the audit log tells
    /// them apart.
    ///
    /// # Errors
    /// When there is no such user.
    pub fn kubeconfig_for(&self, user: &str) -> Result<&Path> {
        self.users.kubeconfig(user)
    }

    /// Directory with the certificate that every server of the plane presents, `tls.crt` with `tls.key`, and with their
    /// authority's certificate, `ca.crt`.
    pub(crate) fn certificates(&self) -> &Path {
        &self.certificates
    }

    /// A client that acts as `user`.
    ///
    /// # Errors
    /// When there is no such user.
    pub async fn client_for(&self, user: &str) -> Result<Client> {
        client(self.users.kubeconfig(user)?).await
    }

    /// How long each step of the start took, in order.
    pub fn timings(&self) -> &[(&'static str, Duration)] {
        &self.timings
    }

    /// The API server's audit log. [`Requests`] reads it.
    pub fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// The present end of the audit log.
    pub fn mark(&self) -> Mark {
        Mark::now(&self.audit_log)
    }

    /// The requests to the API server since `mark`.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn requests_since(&self, mark: Mark) -> Result<Requests> {
        Requests::since(&self.audit_log, mark)
    }

    /// Copies what the audit log holds since `mark` to a file.
    ///
    /// # Errors
    /// When the log cannot be read, or the file cannot be written.
    pub(crate) fn keep_requests_since(&self, mark: Mark, to: &Path) -> Result<()> {
        mark.copy_rest(&self.audit_log, to)
    }

    /// Keeps in a directory what would be lost with the plane: every object, and the requests since `since`.
    ///
    /// # Errors
    /// With the parts that could not be kept. The other parts are kept.
    pub async fn keep_evidence(&self, since: Mark, directory: &Path) -> Result<()> {
        let mut evidence = Evidence::default();
        evidence.of_plane(self, since, directory).await;
        evidence.end()
    }

    /// Applies CRDs and waits until they are served. Restarts garbage collection, because it looks for new kinds only
    /// every 30 s. It is better to give CRDs in [`PlaneOptions::crds`], where they are known from the start.
    ///
    /// # Errors
    /// When the server refuses one or does not serve it in time.
    pub async fn apply_crds(&mut self, crds: &[Value]) -> Result<()> {
        objects::apply_crds(&self.client, crds).await?;
        self.controller_manager.restart().await
    }

    /// Kills the API server, as a crash would. What it stored stays.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn stop_apiserver(&mut self) -> Result<()> {
        self.apiserver.kill().await
    }

    /// Starts the API server again, with the same port and data, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_apiserver(&mut self) -> Result<()> {
        self.apiserver.restart().await?;
        health::apiserver_ready(&mut self.apiserver, &self.client).await
    }

    /// One of the plane's processes, by the name of its log: `etcd`, `kube-apiserver`, `kube-controller-manager`,
    /// `capi-core`, `capi-bootstrap`, `capi-control-plane`.
    ///
    /// # Errors
    /// When the plane has no such process.
    pub fn process(&mut self, name: &str) -> Result<&mut Process> {
        let others = [&mut self.etcd, &mut self.apiserver, &mut self.controller_manager];
        others
            .into_iter()
            .chain(&mut self.managers)
            .find(|process| process.name() == name)
            .with_context(|| format!("the plane has no process {name}"))
    }

    /// Kills every process and waits until they are gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn stop(mut self) -> Result<()> {
        for process in &mut self.managers {
            process.kill().await?;
        }
        self.controller_manager.kill().await?;
        self.apiserver.kill().await?;
        self.etcd.kill().await
    }
}

/// The objects of a manager's manifests, by the time at which they are applied.
#[derive(Default)]
struct Manifests {
    namespaces: Vec<Value>,
    crds: Vec<Value>,
    webhooks: Vec<Value>,
}

impl Manifests {
    /// Reads the manifests of a file, with webhooks that are served at this host and port.
    fn read(file: &Path, webhook_host: &str, webhook_port: u16, authority: &str) -> Result<Self> {
        let text = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        let objects: Vec<Value> = serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?;
        let mut manifests = Self::default();
        for mut object in objects {
            objects::point_webhooks_at(&mut object, webhook_host, webhook_port, authority);
            match object["kind"].as_str() {
                Some("Namespace") => manifests.namespaces.push(object),
                Some("CustomResourceDefinition") => manifests.crds.push(object),
                _ => manifests.webhooks.push(object),
            }
        }
        Ok(manifests)
    }
}

/// Waits until the API server calls the managers' webhooks, which it does a moment after they are configured. It learns
/// all configurations of a kind together, so one object that only a webhook refuses is enough to see it.
async fn webhooks_in_force(client: &Client) -> Result<()> {
    let refused = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "webhook-probe", "namespace": "default"},
        "spec": {"clusterNetwork": {"pods": {"cidrBlocks": ["no network"]}}},
    });
    let (api, _) = api_for(client, &refused).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refused: DynamicObject = serde_json::from_value(refused)?;
    until("webhooks are in force", Duration::from_secs(20), async || match api.create(&dry_run, &refused).await {
        Err(kube::Error::Api(status)) if status.message.contains("admission webhook") => Ok(Some(())),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("a Cluster that only a webhook refuses is accepted"),
    })
    .await
}

/// Waits for the namespace `default`, which the API server makes by itself some time after it is ready.
async fn default_namespace(client: &Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    until("namespace default exists", Duration::from_secs(30), async || Ok(namespaces.get_opt("default").await?))
        .await?;
    Ok(())
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("read the plane's kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("make a client")
}

/// Measures one step after the other.
struct Stopwatch {
    last: Instant,
    laps: Vec<(&'static str, Duration)>,
}

impl Stopwatch {
    fn start() -> Self {
        Self { last: Instant::now(), laps: Vec::new() }
    }

    fn lap(&mut self, name: &'static str) {
        self.laps.push((name, self.last.elapsed()));
        self.last = Instant::now();
    }
}
