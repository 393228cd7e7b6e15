//! All reads for the commands that show something, and the clock.

use crate::snapshot::{Objects, Snapshot};
use anyhow::{Context, Result, bail};
use api::{EtcdCluster, EtcdadmConfig, names};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, ApiResource};
use kube::{Client, ResourceExt};

/// The beginning of the note of a snapshot that lacks EtcdadmConfigs.
pub const CONFIGS: &str = "EtcdadmConfigs";

/// Reads EtcdClusters and what belongs to them.
#[derive(Clone)]
pub struct Reader {
    /// The API server.
    pub client: Client,
    /// Machine, in the version that the API server prefers.
    pub machines: ApiResource,
    /// Cluster, in the version that the API server prefers.
    pub clusters: ApiResource,
}

impl Reader {
    /// Reads which version of Cluster API is served.
    ///
    /// # Errors
    /// When the API server does not answer, or has no Cluster API.
    pub async fn new(client: Client) -> Result<Self> {
        let group = names::CLUSTER_GROUP;
        let served = discovery::group(&client, group).await;
        let served =
            served.with_context(|| format!("ask the API server for {group}: is Cluster API installed there?"))?;
        let version = served.preferred_version_or_latest().to_owned();
        let kind = |kind: &str| {
            let found = served.recommended_kind(kind).map(|(resource, _)| resource);
            found.unwrap_or_else(|| ApiResource::from_gvk(&GroupVersionKind::gvk(group, &version, kind)))
        };
        let (machines, clusters) = (kind("Machine"), kind("Cluster"));
        Ok(Self { client, machines, clusters })
    }

    /// One EtcdCluster.
    ///
    /// # Errors
    /// When it does not exist: the error says which EtcdClusters do. When the API server does not answer.
    pub async fn one(&self, namespace: &str, name: &str) -> Result<Snapshot> {
        let etcd = self.etcd(namespace, name).await?;
        let objects = self.rest(vec![etcd], Some(namespace)).await?;
        objects.snapshots(now()).pop().context("the EtcdCluster that was just read is not there")
    }

    /// All EtcdClusters of a namespace, or of all namespaces.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn all(&self, namespace: Option<&str>) -> Result<Vec<Snapshot>> {
        let etcds = etcds(&self.client, namespace).list(&ListParams::default()).await;
        let etcds = etcds.map_err(explain).context("list EtcdClusters")?;
        Ok(self.rest(etcds.items, namespace).await?.snapshots(now()))
    }

    /// The EtcdCluster itself.
    ///
    /// # Errors
    /// The same as for [`Reader::one`].
    pub async fn etcd(&self, namespace: &str, name: &str) -> Result<EtcdCluster> {
        let etcds: Api<EtcdCluster> = Api::namespaced(self.client.clone(), namespace);
        let found = etcds.get_opt(name).await.map_err(explain);
        if let Some(etcd) = found.with_context(|| format!("read EtcdCluster {namespace}/{name}"))? {
            return Ok(etcd);
        }
        let others = etcds.list_metadata(&ListParams::default()).await.map_err(explain).context("list EtcdClusters")?;
        bail!("{}", missing(namespace, name, &others.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>()))
    }

    async fn rest(&self, etcds: Vec<EtcdCluster>, namespace: Option<&str>) -> Result<Objects> {
        let of_etcd = ListParams::default().labels(names::ETCD_CLUSTER_LABEL);
        let machines = dynamic(&self.client, namespace, &self.machines).list(&of_etcd).await;
        let mut objects = Objects {
            etcds,
            machines: machines.map_err(explain).context("list Machines")?.items,
            ..Objects::default()
        };
        // Without them less is known, but most of it is still worth showing.
        let configs = ApiResource::erase::<EtcdadmConfig>(&());
        let configs = dynamic(&self.client, namespace, &configs).list(&of_etcd).await;
        objects.configs = objects.unless_refused(CONFIGS, configs.map(|list| list.items))?;
        let clusters = dynamic(&self.client, namespace, &self.clusters).list(&ListParams::default()).await;
        objects.clusters = objects.unless_refused("Clusters", clusters.map(|list| list.items))?;
        Ok(objects)
    }
}

impl Objects {
    fn unless_refused(&mut self, what: &str, list: kube::Result<Vec<DynamicObject>>) -> Result<Vec<DynamicObject>> {
        match list {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                self.unread.push(format!("{what}: {}", status.message));
                Ok(Vec::new())
            }
            other => other.map_err(explain).with_context(|| format!("list {what}")),
        }
    }
}

/// EtcdClusters of a namespace, or of all.
#[must_use]
pub fn etcds(client: &Client, namespace: Option<&str>) -> Api<EtcdCluster> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Objects of another provider's kind, in a namespace or in all.
#[must_use]
pub fn dynamic(client: &Client, namespace: Option<&str>, kind: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
        None => Api::all_with(client.clone(), kind),
    }
}

/// The present time.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place where this program reads the clock")]
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// An error of the API server, for users.
#[must_use]
pub fn explain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.code == 404 => anyhow::anyhow!(
            "the API server has no EtcdClusters of {}: is the provider installed there?",
            names::ETCD_CLUSTER_GROUP
        ),
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        other => other.into(),
    }
}

/// The message about an EtcdCluster that does not exist.
#[must_use]
pub fn missing(namespace: &str, name: &str, others: &[String]) -> String {
    let instead = match others {
        [] => "there is none in this namespace (another one: -n NAMESPACE)".to_owned(),
        others => format!("this namespace has: {}", others.join(", ")),
    };
    format!("EtcdCluster {namespace}/{name} does not exist; {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_name_is_answered_with_those_there_are() {
        let others = ["a".to_owned(), "b".to_owned()];
        assert_eq!(missing("default", "x", &others), "EtcdCluster default/x does not exist; this namespace has: a, b");
        assert!(missing("default", "x", &[]).ends_with("there is none in this namespace (another one: -n NAMESPACE)"));
    }
}
