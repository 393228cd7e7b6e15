//! clusterctl's annotation `block-move` on the EtcdCluster: `clusterctl move` waits for a while as long as it is there.

use super::{Outcome, again, set_metadata};
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::{Loss, is_left_alone};
use crate::put_off::PUT_OFF;
use api::{EtcdCluster, names};
use controller_support::Result;
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is put off where it is refused.
const WHAT: &str = "block-move";

/// Sets or removes it where that differs. It comes before the status is written that the move would lose. Nothing of
/// ours depends on it, so a failure is logged, and it is tried again: answers when, if something is left.
pub(crate) async fn show_block_move(context: &Context, observation: &Observation, loss: &Loss) -> Option<Duration> {
    // What this reconcile itself has written counts already.
    let etcd = context.written.newest(observation.etcd.clone());
    let value = change(&etcd, observation, loss)?;
    let uid = etcd.uid().unwrap_or_default();
    if context.put_off.has(&uid, WHAT) {
        return Some(PUT_OFF);
    }
    tracing::info!(etcd = etcd.name_any(), ?loss, "whether clusterctl may move it has changed");
    let metadata = json!({"annotations": {names::BLOCK_MOVE_ANNOTATION: value}});
    match set_metadata(context, &etcd, metadata).await {
        // Somebody else has changed the object: its event is on its way, and everything is decided again.
        Ok(Outcome::Outdated) => context.written.forget(&uid),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, etcd = etcd.name_any(), "block-move was not changed");
            if error.is_invalid() {
                context.put_off.put(&uid, WHAT);
            }
            return Some(again(&error));
        }
    }
    None
}

/// Writes annotations right before a Machine is made, and with them, in one request, that a move has to wait. Where only
/// that is refused, they are written without it.
pub(super) async fn begin_with(
    context: &Context,
    observation: &Observation,
    annotations: BTreeMap<&'static str, Value>,
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let uid = etcd.uid().unwrap_or_default();
    let something = Loss::Of("a Machine is being made".to_owned());
    let value = change(etcd, observation, &something).filter(|_| !context.put_off.has(&uid, WHAT));
    let Some(value) = value else { return set_metadata(context, etcd, json!({"annotations": annotations})).await };
    let mut all = annotations.clone();
    all.insert(names::BLOCK_MOVE_ANNOTATION, value);
    match set_metadata(context, etcd, json!({"annotations": all})).await {
        Err(refusal) if refusal.is_invalid() => {
            let outcome = set_metadata(context, etcd, json!({"annotations": annotations})).await?;
            // Without it they are taken, so it is what is refused.
            tracing::warn!(error = %refusal, etcd = etcd.name_any(), "block-move was not changed");
            context.put_off.put(&uid, WHAT);
            Ok(outcome)
        }
        outcome => outcome,
    }
}

/// What the annotation becomes (null: it goes), if it is to be changed. It is set while nothing is paused, as nothing
/// begins in a pause. It goes in a pause too: clusterctl pauses the Cluster first, and waits for this then. Nothing is
/// changed of what goes.
fn change(etcd: &EtcdCluster, observation: &Observation, loss: &Loss) -> Option<Value> {
    let is_there = etcd.annotations().contains_key(names::BLOCK_MOVE_ANNOTATION);
    if etcd.metadata.deletion_timestamp.is_some() {
        return None;
    }
    match loss {
        Loss::Of(_) => (!is_there && !is_left_alone(observation)).then(|| json!("true")),
        Loss::Nothing => is_there.then_some(Value::Null),
        Loss::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::AGAIN;
    use crate::fixture::Story;
    use controller_support::ResultExt;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::core::Status;

    #[test]
    fn it_is_changed_where_it_differs() {
        let mut story = Story::with_voters(3, 3);
        let of = |story: &Story, loss: &Loss| change(&story.observation.etcd, &story.observation, loss);
        let something = Loss::Of("a member has left".to_owned());
        assert_eq!((of(&story, &Loss::Nothing), of(&story, &something)), (None, Some(json!("true"))));
        let mut paused = story.clone();
        paused.cluster().paused_by = Some("spec.paused".to_owned());
        assert_eq!(of(&paused, &something), None, "nothing begins in a pause, and it may be moved just now");
        for story in [&mut story, &mut paused] {
            assert_eq!(of(story, &Loss::Unknown), None, "it stays away while nobody can say");
            story.annotate(names::BLOCK_MOVE_ANNOTATION, "true");
            assert_eq!(of(story, &Loss::Unknown), None, "it stays while nobody can say");
            assert_eq!(of(story, &something), None);
            assert_eq!(of(story, &Loss::Nothing), Some(Value::Null), "clusterctl waits for it in a pause");
        }
        story.etcd().metadata.deletion_timestamp = Some(Time(story.observation.now));
        assert_eq!(of(&story, &Loss::Nothing), None);
    }

    #[test]
    fn what_has_failed_is_tried_again_without_an_event() {
        let failed = |code: u16| {
            let answer = kube::Error::Api(Box::new(Status { code, ..Status::default() }));
            Err::<(), _>(answer).doing(|| "patching".to_owned()).unwrap_err()
        };
        assert_eq!([403, 503].map(|code| again(&failed(code))), [PUT_OFF, AGAIN]);
    }
}
