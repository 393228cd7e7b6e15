//! The condition `UpToDate` on our Machines, which Cluster API leaves to their owner. Without it, a Cluster never
//! counts its workers as up to date, because etcd's Machines are among those.

use super::Outcome;
use super::machines::machines;
use crate::CONTROLLER;
use crate::build::{expires_soon, is_up_to_date};
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::is_left_alone;
use crate::put_off::PUT_OFF;
use api::conditions::{MACHINE_UP_TO_DATE, reasons};
use controller_support::apply;
use controller_support::external::MachineView;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use std::time::Duration;

/// What is put off after every try: to set the condition to True, and to set it to False.
const IS: &str = "up-to-date";
const IS_NOT: &str = "not-up-to-date";

/// Sets the condition where it differs. Nothing depends on it, so a failure is only logged, and it is tried again much
/// later. Returns when, if something is left.
pub(crate) async fn show_up_to_date(context: &Context, observation: &Observation) -> Option<Duration> {
    let kind = context.machines.resource();
    // Earlier versions have conditions of another form.
    if kind.version != "v1beta2" {
        return None;
    }
    let mut again = None;
    for (machine, up_to_date) in differing(observation) {
        let (what, opposite) = if up_to_date { (IS, IS_NOT) } else { (IS_NOT, IS) };
        if context.put_off.has(&machine.uid, what) {
            again = Some(PUT_OFF);
            continue;
        }
        // Before the write, because the watch shows the change only a moment later.
        context.put_off.put(&machine.uid, what);
        context.put_off.forget(&machine.uid, opposite);
        let object = object(observation, kind, machine, up_to_date);
        let api = machines(context, &observation.etcd);
        let manager = format!("{CONTROLLER}-up-to-date");
        let answer = apply::apply_status::<DynamicObject>(&api, &manager, &machine.name, &object).await;
        match Outcome::of(answer) {
            // Another writer has changed the Machine: its event is on its way, and everything is decided again.
            Ok(Outcome::Outdated) => context.put_off.forget(&machine.uid, what),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, etcd = observation.etcd.name_any(), "UpToDate of a Machine was not set");
                again = Some(PUT_OFF);
            }
        }
    }
    again
}

/// The object to apply. It has the version that was read, so that a manager with older knowledge does not overwrite a
/// newer answer.
fn object(observation: &Observation, kind: &ApiResource, machine: &MachineView, up_to_date: bool) -> Value {
    let [status, reason, message] = shown(observation, machine, up_to_date);
    let condition = json!({"type": MACHINE_UP_TO_DATE, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": format!("{:.0}", observation.now)});
    let metadata = json!({"name": machine.name, "uid": machine.uid, "resourceVersion": machine.resource_version});
    json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata,
        "status": {"conditions": [condition]}})
}

/// Status, reason and message of the condition.
fn shown(observation: &Observation, machine: &MachineView, up_to_date: bool) -> [&'static str; 3] {
    if up_to_date {
        return ["True", reasons::UP_TO_DATE, ""];
    }
    if expires_soon(observation, machine) {
        return ["False", reasons::CERTIFICATE_EXPIRES, "the member's certificate expires soon"];
    }
    ["False", reasons::MADE_FROM_AN_EARLIER_SPEC, "the Machine does not match the spec of its EtcdCluster"]
}

/// Machines whose condition is missing or wrong, and its right value. Nothing is written during a pause, or while the
/// EtcdCluster is being deleted.
fn differing(observation: &Observation) -> Vec<(&MachineView, bool)> {
    if observation.etcd.metadata.deletion_timestamp.is_some() || is_left_alone(observation) {
        return Vec::new();
    }
    let machines = observation.live_machines().map(|machine| (machine, is_up_to_date(observation, machine)));
    machines.filter(|(machine, is)| machine.up_to_date != Some(*is)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, name};
    use kube::core::GroupVersionKind;

    #[test]
    fn it_is_written_over_the_version_that_was_read() {
        let story = Story::with_voters(1, 1);
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
        let object = object(&story.observation, &kind, &story.observation.machines[&name(0)], false);
        assert_eq!(object["metadata"], json!({"name": name(0), "uid": "uid-0", "resourceVersion": "7"}));
        assert_eq!(object["status"]["conditions"][0]["reason"], reasons::MADE_FROM_AN_EARLIER_SPEC);
    }

    #[test]
    fn the_condition_is_set_where_it_differs() {
        let mut story = Story::with_voters(1, 1);
        let shown = |story: &Story| differing(&story.observation).into_iter().map(|(_, is)| is).collect::<Vec<_>>();
        assert_eq!(shown(&story), [true]);
        story.observation.machines.get_mut(&name(0)).unwrap().up_to_date = Some(true);
        assert_eq!(shown(&story), [false; 0]);
        story.etcd().spec.infrastructure_template.name = "bigger".to_owned();
        assert_eq!(shown(&story), [false]);
        story.cluster().paused_by = Some("spec.paused".to_owned());
        assert_eq!(shown(&story), [false; 0]);
    }
}
