//! Every state that an object goes through.

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// What an object has been since it was begun.
pub(crate) struct History<K> {
    states: Arc<Mutex<Vec<K>>>,
    watch: JoinHandle<Result<()>>,
}

impl<K> History<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Begins with the object as it is.
    pub(crate) async fn of(api: Api<K>, name: &str) -> Result<Self> {
        let begin = api.get(name).await?;
        let version = begin.resource_version().unwrap_or_default();
        let states = Arc::new(Mutex::new(vec![begin]));
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let mut events = api.watch(&parameters, &version).await?.boxed();
        let watch = tokio::spawn({
            let states = states.clone();
            async move {
                while let Some(event) = events.try_next().await? {
                    match event {
                        WatchEvent::Modified(state) => {
                            states.lock().unwrap_or_else(PoisonError::into_inner).push(state);
                        }
                        WatchEvent::Error(error) => bail!("{error}"),
                        _ => {}
                    }
                }
                bail!("the API server has ended it")
            }
        });
        Ok(Self { states, watch })
    }

    /// Ends it, and gives all states so far.
    ///
    /// # Errors
    /// When it has ended before: some states may be missing.
    pub(crate) async fn stop(self) -> Result<Vec<K>> {
        if self.watch.is_finished() {
            self.watch.await?.context("the watch has ended")?;
        } else {
            self.watch.abort();
        }
        Ok(std::mem::take(&mut *self.states.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
