//! The resulting Kubernetes cluster, as its user reaches it: through the kubeconfig Secret.

use super::DockerBed;
use crate::bed::ClusterHandle;
use crate::process::output;
use crate::until::until;
use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cluster with an API server.
pub struct Workload {
    client: Client,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
}

impl Workload {
    /// Finds the cluster, if its kubeconfig is there and its API server ready.
    ///
    /// # Errors
    /// When it is not; the error says what is missing.
    pub async fn find(bed: &DockerBed, handle: &ClusterHandle) -> Result<Self> {
        let text = handle.secret(&format!("{}-kubeconfig", handle.cluster), "value").await?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(Kubeconfig::from_yaml(&text)?, &options).await?;
        config.connect_timeout = Some(Duration::from_secs(2));
        let client = Client::try_from(config)?;
        client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
        let kubeconfig = bed.world().state("kubeconfigs")?.join(&handle.cluster);
        fs::write(&kubeconfig, text).with_context(|| format!("write {}", kubeconfig.display()))?;
        Ok(Self { client, kubeconfig, kubectl: bed.world().tools().kubectl.clone() })
    }

    /// Waits until its API server is ready. From then on the observer asks the API server too.
    ///
    /// # Errors
    /// When it is not ready in time.
    pub async fn until_ready(bed: &DockerBed, handle: &ClusterHandle, timeout: Duration) -> Result<Self> {
        let what = format!("the API server of {} is ready", handle.cluster);
        let found = until(what, timeout, async || Self::find(bed, handle).await.map(Some)).await?;
        bed.observe_api_server(handle, &found.kubeconfig);
        Ok(found)
    }

    /// A client for its API server.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Where its kubeconfig is.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Names of its Nodes that are Ready, sorted.
    ///
    /// # Errors
    /// When its API server does not answer.
    pub async fn ready_nodes(&self) -> Result<Vec<String>> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
        let is_ready = |node: &Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|found| found.type_ == "Ready" && found.status == "True")
        };
        let mut names: Vec<String> = nodes.iter().filter(|node| is_ready(node)).map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Versions of its Nodes' kubelets.
    ///
    /// # Errors
    /// When its API server does not answer.
    pub async fn versions(&self) -> Result<Vec<String>> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?;
        let info = |node: Node| node.status.and_then(|status| status.node_info);
        Ok(nodes.items.into_iter().filter_map(info).map(|info| info.kubelet_version).collect())
    }

    /// Waits until it has exactly this many Nodes, all of them Ready.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub async fn until_nodes(&self, wanted: usize, timeout: Duration) -> Result<Vec<String>> {
        until(format!("{wanted} Nodes are Ready"), timeout, async || {
            let all = Api::<Node>::all(self.client.clone()).list(&ListParams::default()).await?.items.len();
            let ready = self.ready_nodes().await?;
            if ready.len() != wanted || all != wanted {
                bail!("{all} Nodes, Ready are {ready:?}");
            }
            Ok(Some(ready))
        })
        .await
    }

    /// Stores a ConfigMap and reads it back.
    ///
    /// # Errors
    /// When it is refused, or something else is read.
    pub async fn store(&self, name: &str) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some([("etcd".to_owned(), "on machines of its own".to_owned())].into()),
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await.with_context(|| format!("store ConfigMap {name}"))?;
        let read = maps.get(name).await.with_context(|| format!("read ConfigMap {name}"))?;
        ensure!(read.data == map.data, "what was read is not what was stored: {:?}", read.data);
        Ok(())
    }

    /// What `kubectl` prints with the cluster's kubeconfig.
    ///
    /// # Errors
    /// When it fails; the error has its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        output(&mut command)
    }
}
