//! clusterctl's annotation `block-move` on the EtcdCluster: `clusterctl move` waits for a while as long as it is there.

use super::{Outcome, set_metadata};
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::is_left_alone;
use api::{EtcdCluster, names};
use kube::ResourceExt;
use serde_json::{Value, json};

/// Sets or removes it where that differs. `obstacle`: what a move would lose now. It comes before the status is written
/// that the move would lose. Nothing of ours depends on it, so a failure is logged, and what is refused is tried again much
/// later.
pub(crate) async fn show_block_move(context: &Context, observation: &Observation, obstacle: Option<&str>) {
    // What this reconcile itself has written counts already.
    let etcd = context.written.newest(observation.etcd.clone());
    let Some(value) = change(&etcd, observation, obstacle.is_some()) else { return };
    let uid = etcd.uid().unwrap_or_default();
    let key = format!("{uid}/block-move");
    if context.refused.get(&key).is_some() {
        return;
    }
    tracing::info!(etcd = etcd.name_any(), obstacle, "whether clusterctl may move it has changed");
    let metadata = json!({"annotations": {names::BLOCK_MOVE_ANNOTATION: value}});
    match set_metadata(context, &etcd, metadata).await {
        // Somebody else has changed the object: its event is on its way, and everything is decided again.
        Ok(Outcome::Outdated) => context.written.forget(&uid),
        Ok(_) => {}
        Err(error) => {
            if error.is_invalid() {
                context.refused.insert(key, ());
            }
            tracing::warn!(%error, etcd = etcd.name_any(), "block-move was not changed");
        }
    }
}

/// What the annotation becomes (null: it goes), if it is to be changed. Nothing is changed while there is a pause, or of
/// what goes.
fn change(etcd: &EtcdCluster, observation: &Observation, is_blocked: bool) -> Option<Value> {
    let is_there = etcd.annotations().contains_key(names::BLOCK_MOVE_ANNOTATION);
    let is_still = etcd.metadata.deletion_timestamp.is_some() || is_left_alone(observation);
    (is_there != is_blocked && !is_still).then(|| if is_blocked { json!("true") } else { Value::Null })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Story;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn it_is_changed_where_it_differs() {
        let mut story = Story::with_voters(3, 3);
        let of = |story: &Story, is_blocked| change(&story.observation.etcd, &story.observation, is_blocked);
        assert_eq!((of(&story, false), of(&story, true)), (None, Some(json!("true"))));
        story.annotate(names::BLOCK_MOVE_ANNOTATION, "true");
        assert_eq!((of(&story, true), of(&story, false)), (None, Some(Value::Null)));
        let mut paused = story.clone();
        paused.cluster().paused_by = Some("spec.paused".to_owned());
        assert_eq!(of(&paused, false), None, "what is paused is left alone, and may be moved just now");
        story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
        assert_eq!(of(&story, false), None);
    }
}
