//! `report`: what a bug report needs, in one file and without secrets.

use super::print;
use super::why::event;
use crate::bundle::{File, Log, Material, Versions, archive, files, name};
use crate::connection::{Connection, Options};
use crate::facts::{CORE_LABEL, Manager, PROVIDER_LABEL, Read};
use crate::gather::{Gatherer, LOG_LINES, crd_names, typed, why};
use crate::reader::Reader;
use anyhow::{Context, Result, bail};
use api::names;
use controller_support::external::Reference;
use k8s_openapi::api::core::v1::{ConfigMap, Event as CoreEvent, Pod};
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing is changed, and nothing is sent anywhere. Secrets are read to tell the names and lengths of their values and the dates of certificates; nothing else of them is kept. Look through the files before you send them."
)]
pub struct Arguments {
    /// Name of the EtcdCluster
    pub name: String,
    /// Where to write it: a file if it ends with .tar.gz or .tgz, else a folder, which is made. Default: a file here,
    /// named after the EtcdCluster and the time
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,
}

/// Writes the report, and prints where it is.
///
/// # Errors
/// When the EtcdCluster cannot be read, or the report cannot be written. The report names anything else that cannot be
/// read.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let Connection { client, namespace } = options.connect().await?;
    let material = Collection::of(client, &namespace, &arguments.name).await?;
    let (name, now) = (name(&arguments.name, material.snapshot.now), material.snapshot.now);
    let files = files(&material);
    let out = arguments.out.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    if is_archive(&out) {
        write(&out, &archive(&name, &files, now)?)?;
    } else {
        write_folder(&out, &files)?;
    }
    let mut lines = vec![format!("{} written to {}", crate::text::count(files.len(), "file"), out.display())];
    lines.extend(material.unread.iter().map(|what| format!("Not read: {what}")));
    lines.push("README.md in it says what was left out. Look through it before you send it.".to_owned());
    print(&lines)?;
    Ok(ExitCode::SUCCESS)
}

fn is_archive(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".tar.gz") || name.ends_with(".tgz")
}

fn write_folder(folder: &Path, files: &[File]) -> Result<()> {
    if folder.exists() {
        bail!("{} exists already", folder.display());
    }
    for file in files {
        let path = folder.join(&file.path);
        let above = path.parent().context("a file without a folder")?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        made.with_context(|| format!("make {}", above.display()))?;
        write(&path, file.text.as_bytes())?;
    }
    Ok(())
}

/// A new file that only its owner may read.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(content));
    written.with_context(|| format!("write {}", path.display()))
}

/// What has been read so far.
struct Collection {
    client: Client,
    gatherer: Gatherer,
    objects: Vec<Value>,
    unread: Vec<String>,
}

impl Collection {
    async fn of(client: Client, namespace: &str, name: &str) -> Result<Material> {
        let reader = Reader::new(client.clone()).await?;
        let snapshot = reader.one(namespace, name).await?;
        let gatherer = Gatherer::new(client.clone(), namespace);
        let mut all = Self { client, gatherer, objects: vec![typed(&snapshot.etcd)], unread: snapshot.unread.clone() };
        all.of_etcd(name, &snapshot.etcd).await;
        let cluster = snapshot.cluster.as_ref().map(|cluster| cluster.name.clone());
        let cluster = cluster.or_else(|| snapshot.etcd.labels().get(names::CLUSTER_NAME_LABEL).cloned());
        let secrets = match &cluster {
            Some(cluster) => {
                all.of_cluster(cluster).await;
                let found = all.gatherer.secrets(cluster).await;
                all.or_note("Secrets", found)
            }
            None => Vec::new(),
        };
        let events = all.events().await;
        let (managers, logs) = all.managers().await;
        let versions = all.versions(managers).await;
        all.unread.sort();
        all.unread.dedup();
        Ok(Material { snapshot, objects: all.objects, secrets, events, logs, versions, unread: all.unread })
    }

    fn or_note<T: Default>(&mut self, what: &str, found: Read<T>) -> T {
        found.unwrap_or_else(|error| {
            self.unread.push(format!("{what}: {error}"));
            T::default()
        })
    }

    async fn object(&mut self, group: &str, kind: &str, name: &str) {
        let found = self.gatherer.object(group, kind, name).await;
        let found = self.or_note(&format!("{kind} {name}"), found);
        self.objects.extend(found);
    }

    async fn objects(&mut self, group: &str, kind: &str, labels: &str) {
        let found = self.gatherer.objects(group, kind, labels).await;
        let found = self.or_note(&format!("{kind}s"), found);
        self.objects.extend(found);
    }

    async fn refer(&mut self, reference: Option<Reference>) {
        if let Some(Reference { group, kind, name }) = reference {
            self.object(&group, &kind, &name).await;
        }
    }

    async fn of_etcd(&mut self, name: &str, etcd: &api::EtcdCluster) {
        let template = &etcd.spec.infrastructure_template;
        self.object(template.group(), &template.kind, &template.name).await;
        self.objects(names::BOOTSTRAP_GROUP, "EtcdadmConfig", &format!("{}={name}", names::ETCD_CLUSTER_LABEL)).await;
    }

    /// The Cluster, the objects that it refers to, and its Machines with their infrastructure.
    async fn of_cluster(&mut self, name: &str) {
        let of_cluster = format!("{}={name}", names::CLUSTER_NAME_LABEL);
        self.object(names::CLUSTER_GROUP, "Cluster", name).await;
        let cluster = self.objects.iter().find(|object| object["kind"] == "Cluster").cloned().unwrap_or_default();
        for pointer in ["/spec/infrastructureRef", "/spec/controlPlaneRef"] {
            self.refer(Reference::read(cluster.pointer(pointer))).await;
        }
        self.objects(names::CLUSTER_GROUP, "MachineHealthCheck", &of_cluster).await;
        let before = self.objects.len();
        self.objects(names::CLUSTER_GROUP, "Machine", &of_cluster).await;
        let machines: Vec<Reference> = self.objects[before..]
            .iter()
            .filter_map(|machine| Reference::read(machine.pointer("/spec/infrastructureRef")))
            .collect();
        for machine in machines {
            self.refer(Some(machine)).await;
        }
        let lock = ListParams::default().fields(&format!("metadata.name={}", names::init_lock(name)));
        let locks = self.gatherer.own::<ConfigMap>(&lock).await;
        let locks = self.or_note("ConfigMaps", locks);
        self.objects.extend(locks.iter().map(typed));
    }

    /// Events about any of the objects.
    async fn events(&mut self) -> Vec<crate::why::Event> {
        let uids = self.objects.iter().filter_map(|object| object.pointer("/metadata/uid")?.as_str());
        let uids: BTreeSet<String> = uids.map(str::to_owned).collect();
        let found = self.gatherer.own::<CoreEvent>(&ListParams::default()).await;
        let found = self.or_note("Events", found);
        let is_of_them = |event: &CoreEvent| event.involved_object.uid.as_ref().is_some_and(|uid| uids.contains(uid));
        found.into_iter().filter(is_of_them).filter_map(event).collect()
    }

    /// The Deployments and Pods of this provider. Returns the managers, and the logs of the Pods.
    async fn managers(&mut self) -> (Vec<Manager>, Vec<Log>) {
        let deployments = self.gatherer.deployments(PROVIDER_LABEL).await;
        let deployments = self.or_note("the manager's Deployment", deployments);
        self.objects.extend(deployments.iter().map(typed));
        let pods = self.gatherer.manager_pods().await;
        let pods = self.or_note("the manager's Pods", pods);
        self.objects.extend(pods.iter().map(typed));
        let mut logs = Vec::new();
        for pod in &pods {
            for previous in [false, true] {
                logs.extend(self.log(pod, previous).await);
            }
        }
        (deployments.iter().map(Manager::new).collect(), logs)
    }

    async fn log(&mut self, pod: &Pod, previous: bool) -> Option<Log> {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let restarts = containers.into_iter().flatten().map(|container| container.restart_count).sum::<i32>();
        if previous && restarts == 0 {
            return None;
        }
        match self.gatherer.log(pod, LOG_LINES, previous).await {
            Ok(text) => {
                Some(Log { namespace: pod.namespace().unwrap_or_default(), pod: pod.name_any(), previous, text })
            }
            Err(why) => {
                self.unread.push(why);
                None
            }
        }
    }

    async fn versions(&mut self, managers: Vec<Manager>) -> Versions {
        let kubernetes = self.client.apiserver_version().await.map(|version| version.git_version).map_err(why);
        let kubernetes = self.or_note("the API server's version", kubernetes);
        let core = self.gatherer.managers(CORE_LABEL).await;
        let cluster_api = self.or_note("Cluster API's Deployment", core);
        let crds = self.gatherer.crds(&crd_names()).await;
        Versions {
            plugin: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes,
            managers,
            cluster_api,
            crds: self.or_note("CRDs", crds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_report_is_its_owners_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = File { path: "objects/a.yaml".to_owned(), text: "a".to_owned() };
        let out = folder.path().join("report");
        write_folder(&out, std::slice::from_ref(&file)).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&out), mode(&out.join("objects/a.yaml"))), (0o700, 0o600));
        assert!(write_folder(&out, &[file]).unwrap_err().to_string().contains("exists already"));
        let archive = folder.path().join("a.tar.gz");
        write(&archive, b"a").unwrap();
        assert!(write(&archive, b"b").is_err());
        assert_eq!(std::fs::read(&archive).unwrap(), b"a");
        assert!(is_archive(&archive) && is_archive(Path::new("a.tgz")) && !is_archive(Path::new("a")));
    }
}
