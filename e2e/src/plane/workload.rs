//! The proof that published endpoints and Secrets are enough: real API servers that are started with nothing else.

use super::health;
use super::pki::Pki;
use super::users::{self, Users};
use crate::process::{Command, Process, Signal};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

/// Port on loopback of an API server that is the only one of its cluster.
pub const PORT: u16 = 16443;
/// An API server that has not said by then that it is ready is not ready.
const DEADLINE: Duration = Duration::from_secs(1);
/// How long requests in progress may delay the end of an API server.
const ENDS: Duration = Duration::from_secs(20);

/// What the control plane needs to reach etcd: from its spec, and from the two Secrets.
#[derive(Clone, Debug)]
pub struct EtcdAccess {
    /// Client URLs.
    pub endpoints: Vec<String>,
    /// `tls.crt` of `{cluster}-etcd`.
    pub ca: String,
    /// `tls.crt` of `{cluster}-apiserver-etcd-client`.
    pub certificate: String,
    /// `tls.key` of `{cluster}-apiserver-etcd-client`.
    pub key: String,
}

/// What all API servers of one workload cluster share: certificates, the key of its service accounts, and a directory.
pub struct Workload {
    world: World,
    directory: PathBuf,
    pki: Pki,
}

impl Workload {
    /// A cluster whose API servers have their files in the directory `name` of the world's memory.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn at(world: &World, name: &str) -> Result<Self> {
        let directory = world.state(name)?;
        let pki = Pki::create(&directory.join("pki"))?;
        Ok(Self { world: world.clone(), directory, pki })
    }

    /// Starts one of its API servers on a port of loopback. It is not ready yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn launch(&self, etcd: &EtcdAccess, port: u16) -> Result<WorkloadApiServer> {
        let (world, pki) = (&self.world, &self.pki);
        let directory = self.directory.join(port.to_string());
        let users = self.users(port)?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok::<_, anyhow::Error>(path)
        };
        let name = format!("workload-kube-apiserver-{port}");
        let process = Command::new(name, &world.tools().workload_kube_apiserver, world.logs())
            .arg(format!("--etcd-servers={}", etcd.endpoints.join(",")))
            .arg(format!("--etcd-cafile={}", write("etcd-ca.crt", &etcd.ca)?.display()))
            .arg(format!("--etcd-certfile={}", write("etcd.crt", &etcd.certificate)?.display()))
            .arg(format!("--etcd-keyfile={}", write("etcd.key", &etcd.key)?.display()))
            .args(["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC"])
            .arg(format!("--advertise-address={}", crate::world::ADDRESS))
            .arg(format!("--secure-port={port}"))
            .arg(format!("--tls-cert-file={}", pki.server_certificate.display()))
            .arg(format!("--tls-private-key-file={}", pki.server_key.display()))
            .arg(format!("--token-auth-file={}", users.token_file.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", pki.service_account_public.display()))
            .arg(format!("--service-account-signing-key-file={}", pki.service_account_private.display()))
            .args(["--service-cluster-ip-range=10.128.0.0/16", "--disable-admission-plugins=ServiceAccount"])
            .spawn()?;
        let kubeconfig = users.kubeconfig(users::ADMIN)?.to_owned();
        let client = super::client(&kubeconfig).await?;
        let observers_kubeconfig = users.kubeconfig(users::OBSERVER)?.to_owned();
        let endpoints = etcd.endpoints.clone();
        Ok(WorkloadApiServer { client, endpoints, port, kubeconfig, observers_kubeconfig, process })
    }

    /// The kubeconfig of [`users::ADMIN`] for a load balancer before the API servers, on a port of loopback.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn kubeconfig(&self, port: u16) -> Result<PathBuf> {
        Ok(self.users(port)?.kubeconfig(users::ADMIN)?.to_owned())
    }

    /// The users at a port. They are the same at every port.
    fn users(&self, port: u16) -> Result<Users> {
        let directory = self.directory.join(port.to_string());
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        Users::create(&directory, &self.pki, &[], port)
    }
}

/// An API server of the workload cluster. Dropping it kills it.
pub struct WorkloadApiServer {
    /// A client for it.
    pub client: Client,
    /// Endpoints that it was started with.
    pub endpoints: Vec<String>,
    /// Its port on loopback.
    pub port: u16,
    /// The kubeconfig of [`users::ADMIN`] there.
    pub kubeconfig: PathBuf,
    /// The kubeconfig of [`users::OBSERVER`] there.
    pub observers_kubeconfig: PathBuf,
    process: Process,
}

impl WorkloadApiServer {
    /// Starts the only API server of a cluster, at [`PORT`], and waits until it is ready, which it is only if it can
    /// write to etcd.
    ///
    /// # Errors
    /// When it does not become ready; the error names its log.
    pub async fn start(world: &World, etcd: &EtcdAccess) -> Result<Self> {
        let mut server = Workload::at(world, "workload")?.launch(etcd, PORT).await?;
        health::apiserver_ready(&mut server.process, &server.client).await?;
        Ok(server)
    }

    /// Whether it is ready now.
    ///
    /// # Errors
    /// When it has ended; the error names its log.
    pub async fn is_ready(&mut self) -> Result<bool> {
        let is_running = self.process.is_running()?;
        ensure!(is_running, "{} has ended: see {}", self.process.name(), self.process.log().display());
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok(matches!(timeout(DEADLINE, self.client.request_text(request)).await, Ok(Ok(_))))
    }

    /// Freezes it, as if its machine hung.
    ///
    /// # Errors
    /// When it has ended.
    pub fn freeze(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// Lets it continue.
    ///
    /// # Errors
    /// When it has ended.
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Ends it: it answers the requests in progress, and accepts no more. If it hangs, it is killed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub async fn stop(mut self) -> Result<()> {
        match self.process.terminate(ENDS).await {
            Ok(_) => Ok(()),
            Err(_) => self.process.kill().await,
        }
    }

    /// Stores an object in etcd, and reads it back.
    ///
    /// # Errors
    /// When it is refused, or something else is read.
    pub async fn store_an_object(&self) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some("it-works".to_owned()), ..ObjectMeta::default() },
            data: Some([("etcd".to_owned(), "on machines of its own".to_owned())].into()),
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await.context("store an object")?;
        let read = maps.get("it-works").await.context("read the object")?;
        ensure!(read.data == map.data, "what was read is not what was stored: {:?}", read.data);
        Ok(())
    }
}
