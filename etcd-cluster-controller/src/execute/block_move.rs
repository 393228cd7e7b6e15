//! clusterctl's annotation `block-move` on the EtcdCluster: while it is there, `clusterctl move` waits, for a limited
//! time.

use super::{Outcome, again, set_metadata};
use crate::context::Context;
use crate::observation::Observation;
use crate::plan::{Loss, is_left_alone};
use api::{EtcdCluster, names};
use controller_support::{Result, apply};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is put off after a refusal.
const WHAT: &str = "block-move";
/// For how long. A refusal may pass, and `clusterctl move` waits for the removal, but not for ten minutes.
const REFUSED: Duration = Duration::from_secs(30);

/// Sets or removes the annotation, if that changes anything. This happens before the status is written that a move
/// would lose. Nothing of ours depends on the annotation, so a failure is logged, and it is tried again. Returns when,
/// if something is left.
///
/// # Errors
/// If another writer has changed the EtcdCluster: everything is decided again, and no status is written.
pub(crate) async fn show_block_move(
    context: &Context,
    observation: &Observation,
    loss: &Loss,
) -> Result<Option<Duration>> {
    // The writes of this reconcile itself count already.
    let etcd = context.written.as_written(observation.etcd.clone());
    let Some(value) = change(&etcd, observation, loss) else { return Ok(None) };
    let uid = etcd.uid().unwrap_or_default();
    if let Some(left) = put_off(context, &uid) {
        return Ok(Some(left));
    }
    tracing::info!(etcd = etcd.name_any(), ?loss, "whether clusterctl may move it has changed");
    let metadata = json!({"annotations": {names::BLOCK_MOVE_ANNOTATION: value}});
    match set_metadata(context, &etcd, metadata).await {
        Ok(Outcome::Changed) => return Err(apply::has_changed::<EtcdCluster>()),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, etcd = etcd.name_any(), "block-move was not changed");
            if error.is_invalid() {
                context.put_off.put(&uid, WHAT);
            }
            return Ok(Some(again(&error, REFUSED)));
        }
    }
    Ok(None)
}

/// For how much longer it is put off.
fn put_off(context: &Context, uid: &str) -> Option<Duration> {
    context.put_off.left(REFUSED, uid, WHAT)
}

/// Writes annotations right before a Machine is created, and `block-move` with them, in one request. If only
/// `block-move` is refused, the annotations are written without it.
pub(super) async fn begin_with(
    context: &Context,
    observation: &Observation,
    annotations: BTreeMap<&'static str, Value>,
) -> Result<Outcome> {
    let etcd = observation.etcd.as_ref();
    let uid = etcd.uid().unwrap_or_default();
    let something = Loss::Of("a Machine is being made".to_owned());
    let value = change(etcd, observation, &something).filter(|_| put_off(context, &uid).is_none());
    let Some(value) = value else { return set_metadata(context, etcd, json!({"annotations": annotations})).await };
    let mut all = annotations.clone();
    all.insert(names::BLOCK_MOVE_ANNOTATION, value);
    match set_metadata(context, etcd, json!({"annotations": all})).await {
        Err(refusal) if refusal.is_invalid() => {
            let outcome = set_metadata(context, etcd, json!({"annotations": annotations})).await?;
            if outcome == Outcome::Done {
                // The annotations are accepted without `block-move`, so that is what was refused.
                tracing::warn!(error = %refusal, etcd = etcd.name_any(), "block-move was not changed");
                context.put_off.put(&uid, WHAT);
            }
            Ok(outcome)
        }
        outcome => outcome,
    }
}

/// The new value of the annotation, if it is to be changed. Null removes it. It is set only while nothing is paused,
/// because nothing begins in a pause. It is removed in a pause too, because clusterctl first pauses the Cluster and
/// then waits for the removal. An EtcdCluster that is being deleted is not changed.
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
        let soon = Duration::from_secs(30);
        assert_eq!([403, 503].map(|code| again(&failed(code), REFUSED)), [soon, AGAIN], "a move waits for it");
    }
}
