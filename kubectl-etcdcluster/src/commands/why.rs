//! `why`: what holds an EtcdCluster up.

use super::print;
use crate::connection::{Connection, Options};
use crate::reader::{Reader, explain};
use crate::snapshot::Snapshot;
use crate::text::Times;
use crate::why::{Event, lines};
use anyhow::Result;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use std::process::ExitCode;

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the EtcdCluster
    pub name: String,
}

/// Explains the state of the EtcdCluster.
///
/// # Errors
/// When the EtcdCluster cannot be read.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let Connection { client, namespace } = options.connect().await?;
    let reader = Reader::new(client).await?;
    let mut snapshot = reader.one(&namespace, &arguments.name).await?;
    let events = match events(&reader.client, &namespace, &snapshot).await {
        Ok(events) => events,
        // Events are a help, but the command works without them.
        Err(error) => {
            snapshot.unread.push(format!("Events: {:#}", explain(error)));
            Vec::new()
        }
    };
    let times = Times::Ages(snapshot.now);
    print(&lines(&snapshot, &events, times))?;
    Ok(ExitCode::SUCCESS)
}

/// Events of the EtcdCluster and of its Machines.
async fn events(client: &Client, namespace: &str, snapshot: &Snapshot) -> kube::Result<Vec<Event>> {
    let api: Api<CoreEvent> = Api::namespaced(client.clone(), namespace);
    let of_kind = |kind: &str| ListParams::default().fields(&format!("involvedObject.kind={kind}"));
    let (etcds, machines) = (api.list(&of_kind("EtcdCluster")).await?, api.list(&of_kind("Machine")).await?);
    let is_ours = |event: &CoreEvent| {
        let uid = event.involved_object.uid.as_deref().unwrap_or_default();
        let mut machines = snapshot.machines.iter();
        snapshot.etcd.uid().as_deref() == Some(uid) || machines.any(|machine| machine.view.uid == uid)
    };
    Ok(etcds.items.into_iter().chain(machines.items).filter(is_ours).filter_map(event).collect())
}

/// An event in the form that is shown; nothing if it has no time.
pub(crate) fn event(event: CoreEvent) -> Option<Event> {
    let time = |micro: MicroTime| Time(micro.0);
    let series = event.series.and_then(|series| series.last_observed_time).map(time);
    let at = series.or(event.last_timestamp).or(event.event_time.map(time)).or(event.metadata.creation_timestamp)?;
    let (kind, name) = (event.involved_object.kind.unwrap_or_default(), event.involved_object.name.unwrap_or_default());
    Some(Event {
        at,
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.unwrap_or_default(),
        about: format!("{kind} {name}"),
        note: event.message.unwrap_or_default(),
    })
}
