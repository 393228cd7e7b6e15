//! `rollout pause|resume|restart`: three narrow patches, and their effects.

use super::print;
use crate::FIELD_MANAGER;
use crate::connection::{Connection, Options};
use crate::reader::{Reader, etcds, explain, now};
use crate::snapshot::Snapshot;
use crate::text::count;
use anyhow::{Context, Result};
use api::etcd_cluster::RolloutType;
use api::names::PAUSED_ANNOTATION;
use controller_support::external::ClusterView;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Arguments of `rollout`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub action: Action,
}

/// What is done.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Stop everything that is done to this etcd: rollouts, replacements of failed members, deletions
    Pause(Target),
    /// Take the pause away
    Resume(Target),
    /// Have all Machines of now replaced, by setting spec.rolloutAfter to the present time
    Restart(Target),
}

/// Whom it is done to.
#[derive(Debug, clap::Args)]
pub struct Target {
    /// Name of the EtcdCluster
    pub name: String,
}

/// Applies the patch, and prints its effect.
///
/// # Errors
/// When the EtcdCluster does not exist, or the API server refuses the patch.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let Connection { client, namespace } = options.connect().await?;
    let reader = Reader::new(client).await?;
    let (Action::Pause(target) | Action::Resume(target) | Action::Restart(target)) = &arguments.action;
    let snapshot = reader.one(&namespace, &target.name).await?;
    let change = match &arguments.action {
        Action::Pause(_) => pause(&snapshot),
        Action::Resume(_) => resume(&snapshot),
        Action::Restart(_) => restart(&snapshot, now()),
    };
    if let Some(patch) = &change.patch {
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let etcds = etcds(&reader.client, Some(&namespace));
        let patched = etcds.patch(&target.name, &parameters, &Patch::Merge(patch)).await;
        patched.map_err(explain).with_context(|| format!("change EtcdCluster {namespace}/{}", target.name))?;
    }
    print(&change.says)?;
    Ok(ExitCode::SUCCESS)
}

/// A change, and the messages about it.
#[derive(Debug, PartialEq)]
struct Change {
    /// The merge patch; nothing if there is nothing to change.
    patch: Option<Value>,
    says: Vec<String>,
}

fn pause(snapshot: &Snapshot) -> Change {
    let name = title(snapshot);
    if is_paused(snapshot) {
        return Change { patch: None, says: vec![format!("{name} is paused already.")] };
    }
    let mut says = vec![
        format!("{name} is paused: annotation {PAUSED_ANNOTATION} is set."),
        "From now on the controller changes nothing: even if a member fails, no Machine is made or replaced and no member leaves, and a deletion waits. etcd itself keeps working.".to_owned(),
        format!("To go on: kubectl etcdcluster rollout resume {}", arguments(snapshot)),
    ];
    let operation = snapshot.etcd.status.as_ref().and_then(|status| status.operation.as_ref());
    says.extend(operation.map(|running| {
        format!("{:?} of member {} has been decided on and may still be carried out.", running.kind, running.member_id)
    }));
    Change { patch: Some(annotation(&json!("true"))), says }
}

fn resume(snapshot: &Snapshot) -> Change {
    let name = title(snapshot);
    let cluster = snapshot.cluster.as_ref().and_then(ClusterView::pause);
    let cluster = cluster.map(|paused| format!("{paused}: nothing goes on before that is taken away."));
    if !is_paused(snapshot) {
        let says = [format!("{name} is not paused.")].into_iter().chain(cluster).collect();
        return Change { patch: None, says };
    }
    let mut says = vec![format!("{name} is no longer paused: annotation {PAUSED_ANNOTATION} is removed.")];
    says.push(cluster.unwrap_or_else(|| {
        format!("It goes on with what is to be done: kubectl etcdcluster status {}", arguments(snapshot))
    }));
    Change { patch: Some(annotation(&Value::Null)), says }
}

fn restart(snapshot: &Snapshot, now: Timestamp) -> Change {
    let machines = snapshot.machines.iter().filter(|machine| !machine.view.deleting).count();
    let mut says = vec![
        format!("{}: spec.rolloutAfter is {now:.0}.", title(snapshot)),
        match snapshot.etcd.spec.rollout_strategy.type_ {
            RolloutType::RollingUpdate => format!(
                "{} made before that are replaced, new members first, from 10 s after that time on.",
                count(machines, "Machine")
            ),
            RolloutType::OnDelete => format!(
                "{} made before that no longer match the spec. As spec.rolloutStrategy.type is OnDelete, they stay until you delete them.",
                count(machines, "Machine")
            ),
        },
    ];
    if is_paused(snapshot) {
        says.push(format!(
            "It is paused: nothing happens before kubectl etcdcluster rollout resume {}",
            arguments(snapshot)
        ));
    }
    says.push(format!("How it goes: kubectl etcdcluster watch {}", arguments(snapshot)));
    let after = format!("{now:.0}");
    Change { patch: Some(json!({"spec": {"rolloutAfter": after}})), says }
}

fn annotation(value: &Value) -> Value {
    json!({"metadata": {"annotations": {PAUSED_ANNOTATION: value}}})
}

fn is_paused(snapshot: &Snapshot) -> bool {
    snapshot.etcd.annotations().contains_key(PAUSED_ANNOTATION)
}

fn title(snapshot: &Snapshot) -> String {
    format!("EtcdCluster {}/{}", snapshot.etcd.namespace().unwrap_or_default(), snapshot.etcd.name_any())
}

/// The arguments that name it on the command line.
fn arguments(snapshot: &Snapshot) -> String {
    format!("{} -n {}", snapshot.etcd.name_any(), snapshot.etcd.namespace().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, NOW, Scene};

    #[test]
    fn what_is_done_is_said() {
        let mut scene = Scene::new(3);
        scene.cluster["spec"]["paused"] = json!(true);
        let of_paused_cluster = scene.read();
        let mut scene = Scene::new(3);
        scene.etcd["spec"]["rolloutStrategy"] = json!({"type": "OnDelete"});
        let on_delete = scene.read();
        let all = [
            ("pause", pause(&fixture::healthy())),
            ("pause one that is paused", pause(&fixture::paused())),
            ("resume", resume(&fixture::paused())),
            ("resume one that is not paused", resume(&fixture::healthy())),
            ("resume where the Cluster is paused", resume(&of_paused_cluster)),
            ("restart", restart(&fixture::healthy(), NOW)),
            ("restart while paused", restart(&fixture::paused(), NOW)),
            ("restart with OnDelete", restart(&on_delete, NOW)),
        ];
        let all = all.map(|(what, change)| {
            let patch = change.patch.map_or_else(|| "nothing".to_owned(), |patch| patch.to_string());
            format!("==== {what}\n{patch}\n{}", change.says.join("\n"))
        });
        insta::assert_snapshot!(all.join("\n"));
    }
}
