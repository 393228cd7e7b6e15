//! Every state that an object goes through.

use anyhow::{Context, Result, bail, ensure};
use api::EtcdCluster;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// The states of an object since the watch began.
pub struct States<K> {
    states: Arc<Mutex<Vec<K>>>,
    watch: JoinHandle<Result<()>>,
}

impl<K> States<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// Starts with the object as it is.
    ///
    /// # Errors
    /// When it cannot be read or watched.
    pub async fn of(api: Api<K>, name: &str) -> Result<Self> {
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

    /// Ends the watch, and returns all states so far.
    ///
    /// # Errors
    /// When the watch has ended before, so that states may be missing.
    pub async fn stop(self) -> Result<Vec<K>> {
        if self.watch.is_finished() {
            self.watch.await?.context("the watch has ended")?;
        } else {
            self.watch.abort();
        }
        Ok(std::mem::take(&mut *self.states.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Checks that Ready was lost, and was not claimed again afterwards.
///
/// # Errors
/// When Ready was claimed again, or was never lost.
pub fn never_ready_again(states: &[EtcdCluster]) -> Result<()> {
    let ready = |etcd: &EtcdCluster| {
        let conditions = etcd.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().find(|condition| condition.type_ == "Ready").cloned()
    };
    let mut given_up = false;
    for condition in states.iter().filter_map(ready) {
        ensure!(!given_up || condition.status != "True", "Ready was claimed again: {condition:?}");
        given_up |= condition.status != "True";
    }
    ensure!(given_up, "Ready was never given up");
    Ok(())
}
