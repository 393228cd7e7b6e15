//! How long Cluster API tries to drain and delete a Machine's Node, as set in `spec.machineTemplate`.

use api::EtcdCluster;
use api::etcd_cluster::MachineDeletion;
use serde_json::{Value, json};

/// Cluster API's default for deleting a Node, in seconds. Its webhook writes this value into every Machine.
const NODE_DELETION: i32 = 10;

/// The time-outs that Machines are to have. `None`: the spec sets none, and Machines are left as they are.
#[must_use]
pub fn wanted_timeouts(etcd: &EtcdCluster) -> Option<MachineDeletion> {
    etcd.spec.machine_template.as_ref()?.spec.as_ref()?.deletion
}

/// Whether both mean the same to Cluster API.
#[must_use]
pub fn same_timeouts(one: MachineDeletion, other: MachineDeletion) -> bool {
    let meaning = |timeouts: MachineDeletion| {
        [
            timeouts.node_drain_timeout_seconds.unwrap_or(0),
            timeouts.node_volume_detach_timeout_seconds.unwrap_or(0),
            timeouts.node_deletion_timeout_seconds.unwrap_or(NODE_DELETION),
        ]
    };
    meaning(one) == meaning(other)
}

/// Adds the time-outs that are set to the spec of a new Machine, in the form of the Machine's API version.
pub(super) fn add(timeouts: MachineDeletion, spec: &mut Value, version: &str) {
    for (name, seconds) in [
        ("nodeDrainTimeout", timeouts.node_drain_timeout_seconds),
        ("nodeVolumeDetachTimeout", timeouts.node_volume_detach_timeout_seconds),
        ("nodeDeletionTimeout", timeouts.node_deletion_timeout_seconds),
    ] {
        match seconds {
            None => {}
            Some(seconds) if version == "v1beta1" => spec[name] = json!(format!("{seconds}s")),
            Some(seconds) => spec["deletion"][format!("{name}Seconds")] = json!(seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeouts(drain: Option<i32>, detach: Option<i32>, delete: Option<i32>) -> MachineDeletion {
        MachineDeletion {
            node_drain_timeout_seconds: drain,
            node_volume_detach_timeout_seconds: detach,
            node_deletion_timeout_seconds: delete,
        }
    }

    #[test]
    fn what_is_not_set_is_as_cluster_api_has_it() {
        let as_made = timeouts(None, None, Some(10));
        assert!(same_timeouts(as_made, MachineDeletion::default()));
        assert!(same_timeouts(timeouts(Some(0), Some(0), None), as_made));
        assert!(!same_timeouts(timeouts(Some(60), None, None), as_made));
        assert!(!same_timeouts(timeouts(None, Some(60), None), as_made));
        assert!(!same_timeouts(timeouts(None, None, Some(0)), as_made), "0 is without a limit, and not the default");
    }

    #[test]
    fn a_new_machine_has_them_in_the_shape_of_its_version() {
        let made = |timeouts: MachineDeletion, version: &str| {
            let mut spec = json!({"clusterName": "demo"});
            add(timeouts, &mut spec, version);
            spec
        };
        let some = timeouts(Some(60), None, Some(0));
        let seconds = json!({"nodeDrainTimeoutSeconds": 60, "nodeDeletionTimeoutSeconds": 0});
        assert_eq!(made(some, "v1beta2"), json!({"clusterName": "demo", "deletion": seconds}));
        let old = json!({"clusterName": "demo", "nodeDrainTimeout": "60s", "nodeDeletionTimeout": "0s"});
        assert_eq!(made(some, "v1beta1"), old);
        let bare = json!({"clusterName": "demo"});
        assert_eq!(made(MachineDeletion::default(), "v1beta2"), bare, "an empty object is refused");
    }
}
