//! The Cluster that the etcd is for.

use super::{Finding, Installation, Subject, text};
use api::names::{MANAGED_ETCD_ANNOTATION, PAUSED_ANNOTATION};
use serde_json::Value;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let cluster = match &subject.cluster {
        Err(why) => return super::unread("the Cluster", why),
        Ok(None) => {
            return vec![Finding::fault(
                format!("no Cluster in namespace {} names EtcdCluster {}", subject.namespace, subject.name()),
                format!("give the Cluster the annotation {MANAGED_ETCD_ANNOTATION}: {}", subject.name()),
            )];
        }
        Ok(Some(cluster)) => cluster,
    };
    let name = text(cluster, "/metadata/name");
    let mut found = vec![Finding::ok(format!("Cluster {name} names it"))];
    let is_paused = |object: &Value| {
        object.pointer("/spec/paused").and_then(Value::as_bool).unwrap_or_default()
            || object.pointer("/metadata/annotations").is_some_and(|all| all.get(PAUSED_ANNOTATION).is_some())
    };
    for (what, object) in [("Cluster", Some(cluster)), ("EtcdCluster", subject.live.as_ref())] {
        if object.is_some_and(is_paused) {
            found.push(Finding::warning(
                format!("the {what} is paused: nothing is made, replaced or deleted"),
                format!("take the pause away: spec.paused of the Cluster, or annotation {PAUSED_ANNOTATION}"),
            ));
        }
    }
    found
}
