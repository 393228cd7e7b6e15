//! Checks what exists once clusters are up: exactly what they consist of, and nothing else.

use super::{Bed, ClusterHandle};
use crate::until::until;
use anyhow::{Context, Result, bail, ensure};
use api::names;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long the last trace of something that is being deleted may stay.
const SETTLES: Duration = Duration::from_secs(30);

impl Bed {
    /// Waits until a namespace holds exactly what these clusters consist of, each with its number of members and the
    /// control plane's first Machine. Then asks each etcd itself: it has to be one etcd cluster, initialized once, in
    /// which all members vote.
    ///
    /// # Errors
    /// When something is missing or does not belong there; the error names it.
    pub async fn exactly(&self, clusters: &[(&ClusterHandle, usize)]) -> Result<()> {
        let (first, _) = clusters.first().context("no cluster to look at")?;
        for (handle, _) in clusters {
            handle.until_control_plane_data(SETTLES).await?;
        }
        until(format!("exactly what belongs there is in {}", first.namespace), SETTLES, async || {
            let mut wanted = BTreeSet::new();
            for (handle, replicas) in clusters {
                wanted.extend(handle.belongings(*replicas).await?);
            }
            let found = self.found(first).await?;
            let list = |of: Vec<&String>| of.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            if wanted != found {
                let (missing, extra) = (wanted.difference(&found).collect(), found.difference(&wanted).collect());
                bail!("missing: [{}]; too many: [{}]", list(missing), list(extra));
            }
            Ok(Some(()))
        })
        .await?;
        for (handle, replicas) in clusters {
            self.one_etcd(handle, *replicas).await.with_context(|| format!("etcd of {}", handle.cluster))?;
        }
        Ok(())
    }

    /// Everything of interest in the namespace of `handle`, its machines included.
    async fn found(&self, handle: &ClusterHandle) -> Result<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for kind in ["Machine", "LocalMachine", "EtcdadmConfig"] {
            found.extend(handle.names(kind, "").await?.into_iter().map(|name| format!("{kind} {name}")));
        }
        found.extend(handle.secret_names().await?.into_iter().map(|name| format!("Secret {name}")));
        found.extend(handle.config_map_names().await?.into_iter().map(|name| format!("ConfigMap {name}")));
        let machines = self.machines.list()?;
        let machines = machines.iter().map(|machine| machine.spec()).filter(|spec| spec.namespace == handle.namespace);
        found.extend(machines.map(|spec| format!("machine {}", spec.name)));
        Ok(found)
    }

    /// Compares etcd's own member list with what is wanted, and with the EtcdCluster's status.
    async fn one_etcd(&self, handle: &ClusterHandle, replicas: usize) -> Result<()> {
        let wanted = handle.member_names(replicas);
        let etcd = handle.membership(&self.machines, &wanted).await?;
        ensure!(etcd.members.len() == replicas, "{replicas} members are wanted, etcd has {:?}", etcd.members);
        ensure!(etcd.voters() == wanted, "{wanted:?} should vote, etcd has {:?}", etcd.members);
        for member in &etcd.members {
            let own = names::peer_url(&self.machines.get(&handle.namespace, &member.name)?.ip().to_string());
            ensure!(
                member.peer_urls == [own.as_str()],
                "member {}, not {own}, has {:?}",
                member.name,
                member.peer_urls
            );
        }
        let status = handle.status().await?;
        ensure!(
            status.cluster_id == etcd.cluster_id,
            "the status says {}, etcd {}",
            status.cluster_id,
            etcd.cluster_id
        );
        let mut initialized = Vec::new();
        for name in &wanted {
            if handle.secret(name, "value").await?.contains("etcdadm init") {
                initialized.push(name);
            }
        }
        ensure!(initialized.len() == 1, "one Machine should initialize, told so were {initialized:?}");
        Ok(())
    }

    /// Deletes everything that scenarios have left, and waits until it is gone, with every trace of its machines.
    ///
    /// # Errors
    /// When something stays; the error names it.
    pub async fn clear(&self, timeout: Duration) -> Result<()> {
        let anywhere = ClusterHandle::anywhere(&self.client());
        for kind in ["Cluster", "EtcdCluster"] {
            for object in anywhere.everywhere(kind).list(&ListParams::default()).await?.items {
                let namespace = object.namespace().unwrap_or_default();
                let handle = ClusterHandle { namespace, etcd: object.name_any(), ..anywhere.clone() };
                let deleted = match kind {
                    "EtcdCluster" => handle.delete_etcd().await,
                    _ => handle.delete(kind, &object.name_any()).await,
                };
                match deleted {
                    Err(error) if !format!("{error:#}").contains("NotFound") => return Err(error),
                    _ => {}
                }
            }
        }
        until("everything of this scenario can be deleted", timeout, async || {
            let mut left = Vec::new();
            for kind in ["Cluster", "EtcdCluster", "Machine", "LocalMachine", "EtcdadmConfig"] {
                let list = anywhere.everywhere(kind).list(&ListParams::default()).await?;
                left.extend(list.items.iter().map(|object| format!("{kind} {}", object.name_any())));
            }
            left.extend(self.traces()?);
            if left.is_empty() { Ok(Some(())) } else { bail!("left are {}", left.join(", ")) }
        })
        .await
    }

    /// The machines that exist. If there are none, the network interfaces that machines have left behind.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn traces(&self) -> Result<Vec<String>> {
        let machines = self.machines.list()?;
        let mut traces: Vec<String> = machines
            .iter()
            .map(|machine| format!("machine {}/{}", machine.spec().namespace, machine.spec().name))
            .collect();
        if machines.is_empty() {
            // Names of the world's interfaces: its loopback, its bridge, and one for each machine.
            let interfaces = std::fs::read_to_string("/proc/self/net/dev").context("list the network's interfaces")?;
            let names = interfaces.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim);
            let ours = names.filter(|name| *name != "lo" && *name != crate::world::BRIDGE);
            traces.extend(ours.map(|name| format!("network interface {name}")));
        }
        Ok(traces)
    }
}

impl ClusterHandle {
    /// Names of `replicas` members, which are also the names of their Machines and of the Machines' objects.
    #[must_use]
    pub fn member_names(&self, replicas: usize) -> Vec<String> {
        (0..replicas).map(|number| format!("{}-{number}", self.etcd)).collect()
    }

    /// Names of all ConfigMaps of the namespace, sorted.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn config_map_names(&self) -> Result<Vec<String>> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut names: Vec<String> =
            maps.list(&ListParams::default()).await?.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        Ok(names)
    }

    /// Everything that the cluster consists of when it has `replicas` members and one control-plane Machine.
    async fn belongings(&self, replicas: usize) -> Result<Vec<String>> {
        let control_plane = self.control_plane_machines().await?;
        ensure!(control_plane.len() == 1, "Machines of the control plane {}: {control_plane:?}", self.control_plane);
        let members = self.member_names(replicas);
        let machines: Vec<String> = members.iter().chain(&control_plane).cloned().collect();
        let mut all: Vec<String> = Vec::new();
        for kind in ["Machine", "LocalMachine", "machine", "Secret"] {
            all.extend(machines.iter().map(|name| format!("{kind} {name}")));
        }
        all.extend(members.iter().map(|name| format!("EtcdadmConfig {name}")));
        let ours = [
            names::ca_secret(&self.cluster),
            names::control_plane_ca_secret(&self.cluster),
            names::staged_apiserver_client_secret(&self.cluster),
            names::apiserver_client_secret(&self.cluster),
            names::init_secret(&self.cluster),
        ];
        let control_planes = ["ca", "sa", "proxy", "kubeconfig"].map(|name| format!("{}-{name}", self.cluster));
        all.extend(ours.into_iter().chain(control_planes).map(|name| format!("Secret {name}")));
        // Ours, and that of Cluster API's kubeadm bootstrap provider.
        let locks = [names::init_lock(&self.cluster), format!("{}-lock", self.cluster)];
        all.extend(locks.map(|name| format!("ConfigMap {name}")));
        Ok(all)
    }
}
