//! The condition of the control plane that tells how etcd is.
//!
//! KubeadmControlPlane leaves `EtcdClusterHealthy` to whoever manages an external etcd, but not always: before it is
//! initialized and while it cannot reach its API servers it says Unknown there in every reconcile. What it says then it
//! says of its own components too, in the same words; so it can be known, and is left alone: two writers of one condition
//! would wake each other for ever.

use super::{Report, compare};
use crate::observation::{ControlPlaneView, Etcd, EtcdView, Observation, Pause};
use crate::plan::Plan;
use api::conditions::{Draft, ETCD_CLUSTER_HEALTHY, reasons, settle};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::time::Duration;

/// Between two writes if somebody else has written it since: whoever that is, it cannot become a quarrel.
const TAKEN_OVER: Duration = Duration::from_secs(10);

/// Reasons that only we give.
const OURS: [&str; 13] = [
    reasons::READY,
    reasons::AVAILABLE,
    reasons::CONTROL_PLANE_ROLLING_OUT,
    reasons::WAITING_FOR_ETCD,
    reasons::ETCD_NOT_FOUND,
    reasons::ETCD_KIND_INVALID,
    reasons::ETCD_BELONGS_TO_ANOTHER_CLUSTER,
    reasons::ETCD_ENDPOINTS_INVALID,
    reasons::CONTROL_PLANE_INVALID,
    reasons::WAITING_FOR_CONTROL_PLANE_ENDPOINT,
    reasons::WAITING_FOR_CLIENT_CERTIFICATE,
    reasons::SHARED_CERTIFICATES_INVALID,
    reasons::WAITING_FOR_CONTROL_PLANE,
];

/// Compares the condition of the control plane with what the plan says. `since_write` as in [`super::report`].
pub fn report(observation: &Observation, plan: &Plan, since_write: Option<Duration>) -> Report {
    let Some(control_plane) = observation.found_control_plane() else { return Report::Nothing };
    let Some(type_) = &control_plane.adapter.condition else { return Report::Nothing };
    let alone = observation.cluster.view.deleting || control_plane.deleting || control_plane.endpoints.is_none();
    if alone || kcp_reports_itself(control_plane) {
        return Report::Nothing;
    }
    let Some(draft) = draft(observation, plan) else { return Report::Nothing };
    let before = control_plane.condition(type_);
    // It may go by another name there.
    let known: Vec<Condition> =
        before.iter().map(|old| Condition { type_: ETCD_CLUSTER_HEALTHY.to_owned(), ..old.clone() }).collect();
    // Without a generation: it does not depend on the control plane's spec.
    let Some(after) = settle(&known, vec![draft], None, &observation.now).pop() else { return Report::Nothing };
    let after = Condition { type_: type_.clone(), ..after };
    match (&before, since_write) {
        (Some(before), Some(elapsed)) if !is_ours(before) && elapsed < TAKEN_OVER => {
            Report::Later(TAKEN_OVER.saturating_sub(elapsed))
        }
        _ => compare(before.as_ref(), after, since_write),
    }
}

/// There is such a condition, and it is ours.
pub fn has_our_condition(observation: &Observation) -> bool {
    observation.found_control_plane().is_some_and(|control_plane| {
        let type_ = control_plane.adapter.condition.as_ref();
        type_.and_then(|type_| control_plane.condition(type_)).is_some_and(|condition| is_ours(&condition))
    })
}

fn is_ours(condition: &Condition) -> bool {
    OURS.contains(&condition.reason.as_str())
}

fn draft(observation: &Observation, plan: &Plan) -> Option<Draft> {
    let of_cluster = super::draft(observation, plan)?;
    let status = match &observation.etcd {
        Etcd::Found(etcd) => Some(healthy(etcd) || of_cluster.status == Some(true)),
        _ => None,
    };
    // What else the Cluster waits for is not etcd's fault.
    let reason = if status == of_cluster.status || status != Some(true) { of_cluster.reason } else { reasons::READY };
    Some(Draft { type_: ETCD_CLUSTER_HEALTHY, status, reason, ..of_cluster })
}

fn healthy(etcd: &EtcdView) -> bool {
    etcd.usable() && !matches!(etcd.claim, crate::observation::Claim::Theirs(_))
}

/// KubeadmControlPlane says it itself at the moment.
fn kcp_reports_itself(control_plane: &ControlPlaneView) -> bool {
    if !control_plane.adapter.kubeadm {
        return false;
    }
    let status = |type_: &str| control_plane.condition(type_).map(|condition| condition.status);
    let is_true = |type_: &str| status(type_).as_deref() == Some("True");
    // A paused one says nothing, once it has observation that it is.
    if !matches!(control_plane.pause, Pause::None | Pause::TakenAway) && is_true("Paused") {
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
    use crate::model::World;
    use crate::plan::plan;
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

    fn reported(world: &World, since: Option<u64>) -> Report {
        let observation = world.observe();
        report(&observation, &plan(&observation), since.map(Duration::from_secs))
    }

    fn written(world: &World) -> String {
        match reported(world, None) {
            Report::Write(condition) => format!("{} {} {}", condition.status, condition.reason, condition.message),
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
        // Paused by us, observation and not yet observation.
        assert_eq!(written(&with(&waiting(), &[])), silent);
        let message = "False WaitingForEtcd EtcdCluster demo-etcd is not ready";
        assert_eq!(written(&with(&waiting(), std::slice::from_ref(&paused))), message);
        // Not initialized: it overwrites whatever is there.
        assert_eq!(written(&with(&running(), &[paused])), silent, "our pause is gone, and it has not said so yet");
        for (reason, message) in [("InspectionFailed", KCP_WAITS), ("ConnectionDown", "Last successful probe at 10:00")]
        {
            let own = kcp("EtcdClusterHealthy", reason, message);
            let components = kcp("ControlPlaneComponentsHealthy", reason, message);
            let both = [initialized.clone(), own.clone(), components];
            assert_eq!(written(&with(&running(), &both)), silent, "it says the same of its components");
            let back = condition("ControlPlaneComponentsHealthy", "True", "Healthy", "");
            assert_eq!(written(&with(&running(), &[initialized.clone(), own.clone(), back])), "True Ready ");
            // Its components cannot be secret_cache at because etcd is down: that is when we have something to say.
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
        assert_eq!(reported(&world, None), Report::Nothing);
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
        let waits = "True Ready Secret demo-etcd with etcd's CA certificate is not there";
        assert_eq!(written(&world), waits, "what else is waited for is not etcd's fault");
        world.etcd = None;
        assert!(written(&world).starts_with("Unknown EtcdNotFound EtcdCluster.etcdcluster.cluster.x-k8s.io demo-etcd"));
        world.etcd_kind = false;
        assert_eq!(written(&world), "Unknown EtcdKindInvalid no such kind");
        // Nobody else's word is answered at once more than now and then.
        let theirs = condition("EtcdClusterHealthy", "False", "Somebody", "else");
        let world = with(&running(), &[initialized, theirs]);
        assert_eq!(reported(&world, Some(4)), Report::Later(Duration::from_secs(6)));
        assert!(matches!(reported(&world, Some(10)), Report::Write(_)));
    }

    #[test]
    fn it_goes_with_the_name_of_the_etcd() {
        let initialized = condition("Initialized", "True", "Initialized", "");
        let ours = condition("EtcdClusterHealthy", "True", "Ready", "");
        let mut world = with(&running(), &[initialized.clone(), ours]);
        world.cluster["metadata"]["annotations"] = json!({});
        assert!(has_our_condition(&world.observe()));
        let theirs = condition("EtcdClusterHealthy", "Unknown", "ConnectionDown", "");
        assert!(!has_our_condition(&with(&world, &[initialized, theirs]).observe()));
    }
}
