//! The proof that published endpoints and Secrets are enough: a real API server started with nothing else.

use super::health;
use super::pki::Pki;
use super::users::{self, Users};
use crate::process::{Command, Process};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::fs;
use std::path::PathBuf;

/// Port of the workload's API server on loopback.
const PORT: u16 = 16443;

/// What the control plane gets of etcd: from its spec, and from the two Secrets.
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

/// An API server of the workload cluster. Dropping it kills it.
pub struct WorkloadApiServer {
    /// A client for it.
    pub client: Client,
    /// Endpoints that it was started with.
    pub endpoints: Vec<String>,
    /// The kubeconfig of [`users::ADMIN`] there.
    pub kubeconfig: PathBuf,
    /// The kubeconfig of [`users::OBSERVER`] there.
    pub observers_kubeconfig: PathBuf,
    _process: Process,
}

impl WorkloadApiServer {
    /// Starts it, and waits until it is ready: which it is only when it can write to etcd.
    ///
    /// # Errors
    /// When it does not become ready; the error names its log.
    pub async fn start(world: &World, etcd: &EtcdAccess) -> Result<Self> {
        let directory = world.state("workload")?;
        let pki = Pki::create(&directory.join("pki"))?;
        let users = Users::create_at(&directory, &pki, &[], PORT)?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok::<_, anyhow::Error>(path)
        };
        let mut process = Command::new("workload-kube-apiserver", &world.tools().kube_apiserver, world.logs())
            .arg(format!("--etcd-servers={}", etcd.endpoints.join(",")))
            .arg(format!("--etcd-cafile={}", write("etcd-ca.crt", &etcd.ca)?.display()))
            .arg(format!("--etcd-certfile={}", write("etcd.crt", &etcd.certificate)?.display()))
            .arg(format!("--etcd-keyfile={}", write("etcd.key", &etcd.key)?.display()))
            .args(["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC"])
            .arg(format!("--advertise-address={}", crate::world::ADDRESS))
            .arg(format!("--secure-port={PORT}"))
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
        health::apiserver_ready(&mut process, &client).await?;
        let observers_kubeconfig = users.kubeconfig(users::OBSERVER)?.to_owned();
        Ok(Self { client, endpoints: etcd.endpoints.clone(), kubeconfig, observers_kubeconfig, _process: process })
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
