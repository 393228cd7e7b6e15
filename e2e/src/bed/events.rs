//! Events, as users see them.

use super::ClusterHandle;
use crate::until::until;
use anyhow::{Result, bail};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use std::time::Duration;

/// How long an event may take to appear: events come after the status that they are about, on a busy computer much
/// later.
const PUBLISHED: Duration = Duration::from_secs(60);

impl ClusterHandle {
    /// Events about an object, oldest first, as `<type> <reason>: <note>`.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn events_about(&self, kind: &str, name: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut list = events.list(&ListParams::default()).await?.items;
        list.retain(|event| {
            let about = event.regarding.as_ref();
            about.is_some_and(|about| about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name))
        });
        list.sort_by(|a, b| a.event_time.cmp(&b.event_time));
        let text = |text: Option<String>| text.unwrap_or_default();
        let line = |event: Event| format!("{} {}: {}", text(event.type_), text(event.reason), text(event.note));
        Ok(list.into_iter().map(line).collect())
    }

    /// Waits until there is exactly one warning about the EtcdCluster, and returns it.
    ///
    /// # Errors
    /// When there is none, or more than one: the error has all events about it.
    pub async fn until_the_only_warning(&self) -> Result<String> {
        until(format!("one warning about EtcdCluster {}", self.etcd), PUBLISHED, async || {
            let events = self.events_about("EtcdCluster", &self.etcd).await?;
            let mut warnings = events.iter().filter(|line| line.starts_with("Warning "));
            match (warnings.next(), warnings.next()) {
                (Some(warning), None) => Ok(Some(warning.clone())),
                _ => bail!("{events:?}"),
            }
        })
        .await
    }

    /// The warnings about our objects: the EtcdCluster, and the EtcdadmConfigs and LocalMachines of its Machines.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn warnings(&self, replicas: usize) -> Result<Vec<String>> {
        let mut all = self.events_about("EtcdCluster", &self.etcd).await?;
        for name in self.member_names(replicas) {
            all.extend(self.events_about("EtcdadmConfig", &name).await?);
            all.extend(self.events_about("LocalMachine", &name).await?);
        }
        Ok(all.into_iter().filter(|line| line.starts_with("Warning ")).collect())
    }
}
