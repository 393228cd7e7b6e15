//! The condition of the control plane that reports the state of etcd.
//!
//! KubeadmControlPlane leaves `EtcdClusterHealthy` to the manager of an external etcd, but not always. Before it is
//! initialized, and while it cannot reach its API servers, it writes Unknown there in every reconcile. At these times,
//! it writes the same words about its own components, which shows who has written them. The hook then leaves the
//! condition alone: two writers of one condition would trigger each other forever.

use super::{Update, compare};
use crate::observation::{ControlPlaneView, Etcd, EtcdView, Observation, Pause};
use crate::plan::Plan;
use api::conditions::{Draft, ETCD_CLUSTER_HEALTHY, from_drafts, reasons};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::time::Duration;

/// Overwrites by others are corrected at most once in this time.
const OVERWRITTEN: Duration = Duration::from_secs(10);

/// Compares the condition of the control plane with what the plan says. `last`: what this process last wrote, and how
/// long ago.
pub fn report(observation: &Observation, plan: &Plan, last: Option<(Duration, Condition)>) -> Update {
    draft(observation, plan).map_or(Update::Nothing, |draft| compare_with(observation, draft, last))
}

/// The API server refuses something to us, so nothing is known for certain: see [`super::failure`].
pub fn failure(observation: &Observation, message: String, last: Option<(Duration, Condition)>) -> Update {
    if observation.cluster.view.is_paused() || observation.etcd == Etcd::NotNamed {
        return Update::Nothing;
    }
    let draft = Draft::unknown(ETCD_CLUSTER_HEALTHY, reasons::REFUSED, message);
    compare_with(observation, draft.in_known_words(known(observation).as_slice()), last)
}

/// The condition as it is, with our type. Its type on the control plane may be another one.
fn known(observation: &Observation) -> Option<Condition> {
    let control_plane = observation.found_control_plane()?;
    let before = control_plane.condition(control_plane.adapter.condition.as_deref()?)?;
    Some(Condition { type_: ETCD_CLUSTER_HEALTHY.to_owned(), ..before })
}

fn compare_with(observation: &Observation, draft: Draft, last: Option<(Duration, Condition)>) -> Update {
    let Some(control_plane) = observation.found_control_plane() else { return Update::Nothing };
    let Some(type_) = &control_plane.adapter.condition else { return Update::Nothing };
    let alone = observation.cluster.view.deleting || control_plane.deleting || control_plane.endpoints.is_none();
    if alone || kcp_reports_itself(control_plane) {
        return Update::Nothing;
    }
    let before = control_plane.condition(type_);
    // Without a generation: it does not depend on the control plane's spec.
    let conditions = from_drafts(known(observation).as_slice(), vec![draft], None, &observation.now);
    let Some(after) = conditions.into_iter().next() else { return Update::Nothing };
    let after = Condition { type_: type_.clone(), ..after };
    match (&before, &last) {
        (Some(before), Some((elapsed, written))) if before != written && before != &after && *elapsed < OVERWRITTEN => {
            Update::Later(OVERWRITTEN.saturating_sub(*elapsed))
        }
        _ => compare(before.as_ref(), after, last.map(|(elapsed, _)| elapsed)),
    }
}

/// The condition of a control plane whose Cluster no longer names an etcd, unless the control plane writes it itself.
pub fn removable(observation: &Observation) -> Option<(&ControlPlaneView, &str)> {
    let control_plane = observation.found_control_plane()?;
    let type_ = control_plane.adapter.condition.as_deref()?;
    let ours = control_plane.condition(type_).is_some() && !kcp_reports_itself(control_plane);
    ours.then_some((control_plane, type_))
}

fn draft(observation: &Observation, plan: &Plan) -> Option<Draft> {
    let of_cluster = super::draft(observation, plan)?;
    let status = match &observation.etcd {
        Etcd::Found(etcd) => Some(healthy(etcd) || of_cluster.status == Some(true)),
        _ => None,
    };
    // If etcd is healthy, the Cluster waits for something that has nothing to do with etcd.
    let reason = if status == of_cluster.status || status != Some(true) { of_cluster.reason } else { reasons::READY };
    Some(Draft { type_: ETCD_CLUSTER_HEALTHY, status, reason, ..of_cluster })
}

fn healthy(etcd: &EtcdView) -> bool {
    etcd.usable() && !matches!(etcd.claim, crate::observation::Claim::Theirs(_))
}

/// Whether KubeadmControlPlane writes the condition itself at the moment.
fn kcp_reports_itself(control_plane: &ControlPlaneView) -> bool {
    if !control_plane.adapter.kubeadm {
        return false;
    }
    let status = |type_: &str| control_plane.condition(type_).map(|condition| condition.status);
    let is_true = |type_: &str| status(type_).as_deref() == Some("True");
    // A paused control plane writes nothing once it has observed the pause.
    if control_plane.pause != Pause::None && is_true("Paused") {
        return false;
    }
    let words = |type_: &str| {
        let condition = control_plane.condition(type_).filter(|condition| condition.status == "Unknown");
        condition.map(|condition| (condition.reason, condition.message))
    };
    let of_etcd = words(ETCD_CLUSTER_HEALTHY);
    !is_true("Initialized") || (of_etcd.is_some() && of_etcd == words("ControlPlaneComponentsHealthy"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::World;
    use serde_json::{Value, json};

    const KCP_WAITS: &str = "Waiting for Cluster control plane to be initialized";

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "1970-01-01T00:00:00Z"})
    }

    fn with(world: &World, conditions: &[Value]) -> World {
        let mut world = world.clone();
        world.control_plane.as_mut().unwrap()["status"]["conditions"] = json!(conditions);
        world
    }

    fn reported(world: &World, last: Option<(u64, &str)>) -> Update {
        let (observation, plan) = world.plan();
        let last = last.map(|(seconds, reason)| {
            let written = condition("EtcdClusterHealthy", "True", reason, "");
            (Duration::from_secs(seconds), serde_json::from_value(written).unwrap())
        });
        report(&observation, &plan, last)
    }

    fn written(world: &World) -> String {
        match reported(world, None) {
            Update::Write(condition) => format!("{} {} {}", condition.status, condition.reason, condition.message),
            other => format!("{other:?}"),
        }
    }

    fn waiting() -> World {
        let mut world = World::applied();
        world.settle();
        world
    }

    fn running() -> World {
        let mut world = World::applied().etcd_ready();
        world.settle();
        world.control_plane.as_mut().unwrap()["status"] = json!({"initialization": {"controlPlaneInitialized": true}});
        world
    }

    #[test]
    fn kubeadm_control_plane_is_not_contradicted() {
        let silent = "Nothing";
        let initialized = condition("Initialized", "True", "Initialized", "");
        let kcp = |type_: &str, reason: &str, message: &str| condition(type_, "Unknown", reason, message);
        let paused = condition("Paused", "True", "Paused", "");
        // Paused by us, observed and not yet observed.
        assert_eq!(written(&with(&waiting(), &[])), silent);
        let message = "False WaitingForEtcd EtcdCluster demo-etcd is not ready";
        assert_eq!(written(&with(&waiting(), std::slice::from_ref(&paused))), message);
        // The control plane is not initialized, and overwrites whatever the condition says.
        assert_eq!(written(&with(&running(), &[paused])), silent, "our pause is gone, and it has not said so yet");
        for (reason, message) in [("InspectionFailed", KCP_WAITS), ("ConnectionDown", "Last successful probe at 10:00")]
        {
            let own = kcp("EtcdClusterHealthy", reason, message);
            let components = kcp("ControlPlaneComponentsHealthy", reason, message);
            let both = [initialized.clone(), own.clone(), components];
            assert_eq!(written(&with(&running(), &both)), silent, "it says the same of its components");
            let back = condition("ControlPlaneComponentsHealthy", "True", "Healthy", "");
            assert_eq!(written(&with(&running(), &[initialized.clone(), own.clone(), back])), "True Ready ");
            // The control plane cannot inspect its components because etcd is down: then our condition matters most.
            let other = kcp("ControlPlaneComponentsHealthy", "InspectionFailed", "Failed to get Nodes");
            assert_eq!(written(&with(&running(), &[initialized.clone(), own, other])), "True Ready ");
        }
        assert_eq!(written(&with(&running(), &[initialized])), "True Ready ", "it has said nothing");
    }

    #[test]
    fn it_is_written_once_and_again_when_it_changes() {
        let initialized = condition("Initialized", "True", "Initialized", "");
        let ours = condition("EtcdClusterHealthy", "True", "Ready", "");
        let mut world = with(&running(), &[initialized.clone(), ours]);
        assert_eq!(reported(&world, None), Update::Nothing);
        world.set_ready(false, "");
        assert_eq!(written(&world), "False WaitingForEtcd EtcdCluster demo-etcd is not ready: ScalingUp: 1 of 3");
        let given = world.endpoints();
        world.set_ready(false, &given);
        let available = json!({"type": "Available", "status": "True"});
        world.etcd.as_mut().unwrap()["status"]["conditions"].as_array_mut().unwrap().push(available);
        assert!(written(&world).starts_with("True Available EtcdCluster demo-etcd is not ready"), "it serves");
        world.set_ready(true, &given);
        world.stage("renewed");
        world.secrets.remove("demo-etcd");
        let waits = "True Ready etcd's provider has not made Secret demo-etcd with etcd's CA certificate yet";
        assert_eq!(written(&world), waits, "what else is waited for is not etcd's fault");
        world.etcd = None;
        assert!(written(&world).starts_with("Unknown EtcdNotFound EtcdCluster.etcdcluster.cluster.x-k8s.io demo-etcd"));
        world.etcd_kind = false;
        assert_eq!(written(&world), "Unknown EtcdKindInvalid no such kind");
        // Overwrites by others are corrected at most once per 10 s.
        let theirs = condition("EtcdClusterHealthy", "False", "Somebody", "else");
        let world = with(&running(), &[initialized, theirs]);
        assert_eq!(reported(&world, Some((4, "Ready"))), Update::Later(Duration::from_secs(6)));
        assert!(matches!(reported(&world, Some((10, "Ready"))), Update::Write(_)));
        assert!(matches!(reported(&world, None), Update::Write(_)), "by a new process at once");
    }

    #[test]
    fn it_does_not_stay_true_while_something_is_refused_to_us() {
        let initialized = condition("Initialized", "True", "Initialized", "");
        let ours = condition("EtcdClusterHealthy", "True", "Ready", "");
        let mut world = with(&running(), &[initialized.clone(), ours]);
        let refused = "secrets is forbidden".to_owned();
        let failed = |world: &World| failure(&world.observe(), refused.clone(), None);
        let Update::Write(said) = failed(&world) else { panic!("it stays True") };
        assert_eq!((&*said.status, &*said.reason, &*said.message), ("Unknown", reasons::REFUSED, &*refused));
        assert_eq!(failed(&with(&world, &[initialized, json!(said)])), Update::Nothing, "it is said once");
        world.cluster["spec"]["paused"] = json!(true);
        assert_eq!(failed(&world), Update::Nothing);
    }

    #[test]
    fn it_goes_with_the_name_of_the_etcd() {
        let initialized = condition("Initialized", "True", "Initialized", "");
        let ours = condition("EtcdClusterHealthy", "True", "Ready", "");
        let removes = |world: &World| removable(&world.observe()).is_some();
        let mut world = with(&running(), &[initialized.clone(), ours.clone()]);
        world.cluster["metadata"]["annotations"] = json!({});
        assert!(removes(&world));
        assert!(
            !removes(&with(&world, std::slice::from_ref(&ours))),
            "it is the control plane's before it is initialized"
        );
        assert!(!removes(&with(&world, &[initialized])), "there is none");
    }
}
