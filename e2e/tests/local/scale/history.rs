//! Every state that an object goes through.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// What an object has been since it was begun.
pub(super) struct History<K> {
    states: Arc<Mutex<Vec<K>>>,
    watch: JoinHandle<()>,
}

impl<K> History<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Begins with the object as it is.
    pub(super) async fn of(api: Api<K>, name: &str) -> Result<Self> {
        let begin = api.get(name).await?;
        let version = begin.resource_version().unwrap_or_default();
        let states = Arc::new(Mutex::new(vec![begin]));
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = api.watch(&parameters, &version).await?.boxed();
        let watch = tokio::spawn({
            let states = states.clone();
            async move {
                while let Ok(Some(event)) = events.try_next().await {
                    if let WatchEvent::Modified(state) = event {
                        states.lock().unwrap_or_else(PoisonError::into_inner).push(state);
                    }
                }
            }
        });
        Ok(Self { states, watch })
    }

    /// Ends it, and gives all states so far.
    pub(super) fn stop(self) -> Vec<K> {
        self.watch.abort();
        std::mem::take(&mut *self.states.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
