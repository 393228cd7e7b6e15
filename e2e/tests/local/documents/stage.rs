//! A cluster called `demo`, as on the pages, and a shell beside it.

use super::judged::{INSTALLED_IN, as_dry_run};
use super::shell::Shell;
use super::table::Fate;
use crate::bring_up::{PATIENCE, released};
use anyhow::{Context, Result};
use api::names;
use e2e::apply::apply_object;
use e2e::bed::data::said;
use e2e::bed::{Bed, ClusterHandle, Manifests};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use local_infrastructure::machine::Machine;
use serde_json::{Value, json};
use std::time::Duration;

/// How long it may take to delete what a page has left.
const CLEAR: Duration = Duration::from_secs(120);
/// Asks etcd for its present revision.
const STATUS: [&str; 4] = ["/opt/bin/etcdctl.sh", "endpoint", "status", "--write-out=json"];

pub(super) struct Stage {
    handle: ClusterHandle,
    shell: Shell,
}

impl Stage {
    /// Brings a cluster up, in a namespace with this number.
    pub(super) async fn set(bed: &Bed, number: usize) -> Result<Self> {
        let client = bed.client();
        let manifests = Manifests::new(&format!("documents-{number}"), "demo")?;
        ClusterHandle::make_namespace(&client, &manifests.namespace).await?;
        manifests.apply(&client).await?;
        let handle = ClusterHandle::new(&client, &manifests);
        handle.until_ready(PATIENCE).await?;
        released(&handle).await?;
        Ok(Self { handle, shell: Shell::new(bed, &manifests)? })
    }

    /// Runs a command, with names in place of its placeholders.
    pub(super) async fn run(&self, bed: &Bed, command: &str, fate: Fate) -> Result<()> {
        let line = self.filled(command).await?;
        match fate {
            Fate::Run | Fate::Afresh => self.shell.succeeds(&line.replace(INSTALLED_IN, &self.installed_in())).await,
            Fate::Judged => {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INSTALLED_IN}});
                apply_object(&bed.client(), &namespace).await?;
                self.shell.succeeds(&as_dry_run(&line)).await
            }
            Fate::Answers => self.shell.answers(&line, &self.handle.etcd).await,
            Fate::Refuses => self.shell.refuses(&line, &self.handle.etcd).await,
            Fate::Endless => self.shell.goes_on(&line, &self.handle.etcd).await,
            Fate::Machine => {
                let machine = bed.machines.get(&self.handle.namespace, &self.handle.member_names(1)[0])?;
                on_a_machine(&machine, line).await
            }
            Fate::Excused(_) => Ok(()),
        }
    }

    /// The namespace that commands of this stage make in place of the manager's, which another scenario may have made.
    fn installed_in(&self) -> String {
        format!("{INSTALLED_IN}-{}", self.handle.namespace)
    }

    /// The command with names of this cluster. `hack/enter.sh` enters the world of a demo; the shell is already in the
    /// bed's world.
    async fn filled(&self, command: &str) -> Result<String> {
        let ClusterHandle { namespace, cluster, etcd, control_plane, .. } = &self.handle;
        let of_etcd = ListParams::default().labels(&format!("{}={etcd}", names::ETCD_CLUSTER_LABEL));
        let machines = self.handle.api("Machine").list(&of_etcd).await?.items;
        let stay = machines.iter().filter(|machine| machine.metadata.deletion_timestamp.is_none());
        let machine = stay.map(ResourceExt::name_any).min().unwrap_or_default();
        let live = self.handle.etcds().get_opt(etcd).await?;
        let generation = live.and_then(|live| live.metadata.generation).unwrap_or_default().to_string();
        let command = command.strip_prefix("hack/enter.sh ").unwrap_or(command);
        let command = command
            .replace("othercontrolplanes.example.org", "stubcontrolplanes.example.org")
            .replace(" default/", &format!(" {namespace}/"))
            .replace(" -n default ", &format!(" -n {namespace} "))
            // Prometheus does not run here, and this computer may have one of its own.
            .replace(">/etc/prometheus/etcd/targets.json", "| tee targets.json");
        Ok(with_words(
            &command,
            &[
                ("NAME", etcd.as_str()),
                ("NAMESPACE", namespace.as_str()),
                ("CLUSTER", cluster.as_str()),
                ("CONTROL_PLANE", control_plane.as_str()),
                ("MACHINE", machine.as_str()),
                ("GENERATION", generation.as_str()),
                ("USER", "somebody"),
                ("FILE", "cluster.yaml"),
            ],
        ))
    }

    /// Deletes everything.
    pub(super) async fn end(self, bed: &Bed) -> Result<()> {
        // An EtcdCluster that a page has paused would not be deleted.
        let lift = json!({"metadata": {"annotations": {names::PAUSED_ANNOTATION: null}}});
        let etcds = self.handle.api("EtcdCluster");
        match etcds.patch(&self.handle.etcd, &PatchParams::default(), &Patch::Merge(&lift)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.context("lift a pause")?),
        }
        let namespaces: Api<Namespace> = Api::all(bed.client());
        match namespaces.delete(&self.installed_in(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.context("delete a namespace")?),
        }
        bed.clear(CLEAR).await
    }
}

/// Runs a command on a machine of etcd.
async fn on_a_machine(machine: &Machine, line: String) -> Result<()> {
    let line = match line.contains("REVISION") {
        true => with_words(&line, &[("REVISION", revision(machine).await?.as_str())]),
        false => line,
    };
    said(machine, &["sh", "-c", &line]).await.map(drop)
}

/// The present revision of etcd, which a person reads from what an earlier command has printed.
async fn revision(machine: &Machine) -> Result<String> {
    let status: Value = serde_json::from_str(&said(machine, &STATUS).await?)?;
    let revision = status.pointer("/0/Status/header/revision").and_then(Value::as_u64);
    Ok(revision.with_context(|| format!("no revision: {status}"))?.to_string())
}

/// Replaces these words in the text, and only whole words.
fn with_words(text: &str, words: &[(&str, &str)]) -> String {
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut filled = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(|c: char| !is_of_a_word(c)).unwrap_or(rest.len()));
        let known = words.iter().find(|(name, _)| *name == word);
        filled.push_str(known.map_or(word, |(_, value)| *value));
        let (between, next) = after.split_at(after.find(is_of_a_word).unwrap_or(after.len()));
        filled.push_str(between);
        rest = next;
    }
    filled
}
