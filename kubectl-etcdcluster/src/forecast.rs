//! The effect of an edit: the shipped planner decides, and each step that it asks for succeeds, until nothing is left
//! to do. Pure.
//!
//! Assumptions: new machines boot, members stay as healthy or unhealthy as they are, the control plane rolls out
//! whenever other endpoints are published to it, and nobody changes anything else.

mod others;
mod world;

use crate::observation::{for_comparing, observation};
use crate::snapshot::Snapshot;
use api::conditions::reasons::{ROLLING_OUT, UNSUPPORTED_VERSION_CHANGE};
use api::conditions::{MACHINES_UP_TO_DATE, SCALING_DOWN, SCALING_UP};
use api::{EtcdCluster, names};
use etcd_cluster_controller::build::is_up_to_date;
use etcd_cluster_controller::observation::{ClusterLink, Observation, Template};
use etcd_cluster_controller::plan::WhyDeleted;
use etcd_cluster_controller::status::status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::json;
use std::sync::Arc;
use world::World;

/// The future of an EtcdCluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Machines that are deleted, in this order, and why.
    pub deleted: Vec<(String, WhyDeleted)>,
    /// Machines that are made, in this order.
    pub made: Vec<String>,
    /// The number of existing Machines.
    pub machines_now: usize,
    /// The largest number of Machines at the same time, without those that are being deleted.
    pub peak: usize,
    /// The same number including those that are being deleted, if the infrastructure deletes machines slowly.
    pub peak_with_leaving: usize,
    /// How often the control plane rolls out.
    pub control_plane_rollouts: usize,
    /// Existing Machines that stay, although they do not match the spec in the end.
    pub outdated: Vec<String>,
    /// Existing Machines, with those on their way out, that do not match the spec before the edit.
    pub differ_before: Vec<String>,
    /// The same after the edit.
    pub differ_after: Vec<String>,
    /// The number of Machines in the end.
    pub machines_then: usize,
    /// Why the provider refuses the etcd version of the spec.
    pub refused: Option<String>,
    /// What holds up the EtcdCluster in the end: reason and message. `None`: all is done.
    pub held_up: Option<(String, String)>,
}

/// Runs an EtcdCluster until nothing is left to do, with `etcd` in place of the one in the snapshot. Ignores a pause.
#[must_use]
pub fn forecast(snapshot: &Snapshot, mut etcd: EtcdCluster, template: Template) -> Forecast {
    let existing: Vec<&str> = snapshot.machines.iter().map(|machine| machine.view.name.as_str()).collect();
    etcd.metadata.annotations.get_or_insert_default().remove(names::PAUSED_ANNOTATION);
    let mut start = observation(snapshot, etcd, template);
    if let ClusterLink::One(cluster) = &mut start.cluster {
        cluster.paused_by = None;
    }
    let (differ_before, differ_after) = (differ(&for_comparing(snapshot)), differ(&start));
    let mut world = World::new(start);
    let decision = world.run();
    let observation = &world.observation;
    let status = status(observation, &decision, None);
    let rollout = status.conditions.iter().find(|condition| condition.type_ == MACHINES_UP_TO_DATE);
    let because = |reason: &str| rollout.filter(|rollout| rollout.status == "False" && rollout.reason == reason);
    // The decision does not mention a rollout or another size that does not begin, if nothing else is left to do.
    let scaling = || {
        let scales = |condition: &Condition| [SCALING_UP, SCALING_DOWN].contains(&condition.type_.as_str());
        status.conditions.iter().find(|condition| scales(condition) && condition.status == "True")
    };
    let held_up = decision.next.hold().map(|hold| (hold.reason.to_owned(), hold.message.clone()));
    let begins_not = || because(ROLLING_OUT).or_else(scaling);
    let held_up = held_up.or_else(|| begins_not().map(|held| (held.reason.clone(), held.message.clone())));
    let stays = observation.live_machines().filter(|machine| existing.contains(&machine.name.as_str()));
    let outdated = stays.filter(|machine| !is_up_to_date(observation, machine));
    Forecast {
        outdated: outdated.map(|machine| machine.name.clone()).collect(),
        refused: because(UNSUPPORTED_VERSION_CHANGE).map(|refused| refused.message.clone()),
        held_up,
        machines_now: existing.len(),
        machines_then: observation.machines.len(),
        differ_before,
        differ_after,
        ..world.forecast
    }
}

/// Machines that do not match the spec, with those on their way out.
fn differ(observation: &Observation) -> Vec<String> {
    let differ = observation.machines.values().filter(|machine| !is_up_to_date(observation, machine));
    differ.map(|machine| machine.name.clone()).collect()
}

/// A template that is assumed to exist. Nothing else is known about it.
#[must_use]
pub fn assumed_template(etcd: &EtcdCluster) -> Template {
    let wanted = &etcd.spec.infrastructure_template;
    let clones = wanted.kind.strip_suffix("Template").unwrap_or(&wanted.kind);
    let clones = ApiResource::from_gvk(&GroupVersionKind::gvk(wanted.group(), "v1beta2", clones));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(wanted.group(), "v1beta2", &wanted.kind));
    let mut template = DynamicObject::new(&wanted.name, &kind);
    template.data = json!({"spec": {"template": {"spec": {}}}});
    Template::Found { template: Arc::new(template), clones }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, Scene, name};
    use crate::snapshot::Snapshot;
    use api::etcd_cluster::{RollingUpdate, RolloutType};
    use kube::ResourceExt;

    fn with(snapshot: &Snapshot, change: impl FnOnce(&mut EtcdCluster)) -> Forecast {
        let mut etcd = snapshot.etcd.clone();
        change(&mut etcd);
        forecast(snapshot, etcd.clone(), assumed_template(&etcd))
    }

    fn upgrade(etcd: &mut EtcdCluster) {
        etcd.spec.etcdadm_config_spec.version = Some("3.6.17".to_owned());
    }

    fn of(voters: usize) -> Snapshot {
        let mut scene = Scene::new(voters);
        scene.etcd["spec"]["replicas"] = json!(voters);
        scene.read()
    }

    #[test]
    fn without_a_change_nothing_happens() {
        let nothing = with(&fixture::healthy(), |_| {});
        let same = Forecast { machines_now: 3, machines_then: 3, peak: 3, peak_with_leaving: 3, ..Forecast::default() };
        assert_eq!(nothing, same);
    }

    #[test]
    fn rollouts_take_what_the_documents_say() {
        for (replicas, max_surge, peak, tells) in [
            (1, None, (2, 2), 1),
            (3, None, (6, 6), 1),
            (5, None, (8, 10), 1),
            (7, None, (11, 14), 1),
            (3, Some(1), (4, 6), 2),
            (3, Some(2), (5, 6), 1),
            (5, Some(1), (6, 10), 2),
            (3, Some(0), (3, 3), 3),
            (5, Some(0), (5, 5), 3),
            (7, Some(0), (7, 7), 3),
        ] {
            let end = with(&of(replicas), |etcd| {
                upgrade(etcd);
                etcd.spec.rollout_strategy.rolling_update =
                    max_surge.map(|most| RollingUpdate { max_surge: Some(most) });
            });
            let what = format!("{replicas} with maxSurge {max_surge:?}: {end:?}");
            assert_eq!((end.deleted.len(), end.made.len()), (replicas, replicas), "{what}");
            assert_eq!((end.control_plane_rollouts, &end.held_up, &end.refused), (tells, &None, &None), "{what}");
            assert_eq!((end.peak, end.peak_with_leaving), peak, "{what}");
            assert!(end.outdated.is_empty(), "{what}");
        }
    }

    #[test]
    fn where_nobody_uses_them_one_after_the_other_is_replaced() {
        let mut scene = Scene::new(3);
        scene.etcd["metadata"]["annotations"][names::ENDPOINTS_IN_USE_ANNOTATION] = json!("");
        let end = with(&scene.read(), upgrade);
        assert_eq!((end.deleted.len(), end.peak, end.control_plane_rollouts), (3, 4, 0), "{end:?}");
    }

    #[test]
    fn growing_and_shrinking_tell_the_control_plane_once() {
        let end = with(&of(3), |etcd| etcd.spec.replicas = 5);
        assert_eq!((end.made.len(), end.deleted.len(), end.control_plane_rollouts), (2, 0, 1), "{end:?}");
        let end = with(&of(5), |etcd| etcd.spec.replicas = 3);
        let gone: Vec<&str> = end.deleted.iter().map(|(machine, _)| machine.as_str()).collect();
        assert_eq!((gone, end.control_plane_rollouts), (vec!["demo-etcd-4", "demo-etcd-3"], 1));
    }

    #[test]
    fn a_version_that_cannot_be_reached_is_refused_and_replaces_nobody() {
        let end = with(&of(3), |etcd| etcd.spec.etcdadm_config_spec.version = Some("3.8.0".to_owned()));
        let why = end.refused.unwrap();
        assert!(why.contains("go to 3.7 first"), "{why}");
        assert!(end.deleted.is_empty() && end.made.is_empty());
    }

    #[test]
    fn what_holds_everything_because_of_an_alarm_is_told() {
        let mut scene = Scene::new(3);
        scene.alarm("DataCorrupt");
        let corrupt = scene.read();
        let to_one: fn(&mut EtcdCluster) = |etcd| etcd.spec.replicas = 1;
        for edit in [upgrade, to_one] {
            let end = with(&corrupt, edit);
            assert!(end.deleted.is_empty() && end.made.is_empty() && end.held_up.is_some(), "{end:?}");
        }
    }

    #[test]
    fn machines_that_show_only_other_addresses_join_too() {
        let mut scene = Scene::new(3);
        scene.etcd["spec"]["addressTypes"] = json!(["Hostname", "InternalIP"]);
        let end = with(&scene.read(), upgrade);
        assert_eq!((end.deleted.len(), end.made.len(), &end.held_up), (3, 3, &None), "{end:?}");
    }

    #[test]
    fn machines_stay_that_a_person_is_to_delete() {
        let end = with(&of(3), |etcd| {
            upgrade(etcd);
            etcd.spec.rollout_strategy.type_ = RolloutType::OnDelete;
        });
        assert_eq!(end.outdated, [name(0), name(1), name(2)]);
        assert!(end.deleted.is_empty());
    }

    #[test]
    fn what_holds_a_rollout_up_is_told() {
        let mut scene = Scene::new(3);
        scene.etcd["metadata"]["annotations"].as_object_mut().unwrap().remove(names::ENDPOINTS_IN_USE_ANNOTATION);
        let mut snapshot = scene.read();
        snapshot.etcd.status.as_mut().unwrap().endpoints_in_use = String::new();
        let end = with(&snapshot, upgrade);
        assert!(end.deleted.is_empty() && end.outdated.len() == 3, "{end:?}");
        assert!(end.held_up.unwrap().1.contains("it is not known which endpoints the API servers use"));
        let end = with(&of(3), |etcd| {
            etcd.spec.infrastructure_template.name = "bigger".to_owned();
        });
        assert_eq!(end.deleted.len(), 3, "{end:?}");
    }

    #[test]
    fn a_cluster_that_may_not_be_read_is_taken_for_well() {
        let mut snapshot = fixture::healthy();
        snapshot.cluster = None;
        assert_eq!(with(&snapshot, upgrade).held_up.unwrap().0, "WaitingForCluster");
        snapshot.etcd.labels_mut().insert(names::CLUSTER_NAME_LABEL.to_owned(), "demo".to_owned());
        snapshot.unread = vec!["Clusters: forbidden".to_owned()];
        assert_eq!(with(&snapshot, upgrade).deleted.len(), 3);
    }

    #[test]
    fn a_pause_is_taken_for_lifted() {
        let end = with(&fixture::paused(), upgrade);
        assert_eq!((end.deleted.len(), end.held_up), (3, None));
    }

    #[test]
    fn a_failing_voter_is_replaced_before_the_others() {
        let mut scene = Scene::new(3);
        scene.fails(1, "2026-11-23T07:50:00Z");
        scene.etcd["status"]["members"][1]["health"] = json!("Unhealthy");
        let end = with(&scene.read(), upgrade);
        assert!(end.deleted.contains(&(name(1), WhyDeleted::Unhealthy)), "{end:?}");
        assert_eq!(end.held_up, None, "{end:?}");
    }
}
