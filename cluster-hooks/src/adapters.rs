//! Adapters of the kinds of control planes that are in use. What a CRD says is remembered for a while: nothing tells when
//! its annotations change.

use crate::adapter::Adapter;
use controller_support::loose::Reference;
use controller_support::{Error, KindError, Result, kinds::Kinds};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For how long the annotations of a CRD are taken as they were read. Those that are wrong are read again whenever they
/// are needed.
const TTL: Duration = Duration::from_secs(600);

/// By group and kind; when it was found out.
type Known = HashMap<(String, String), (Instant, Arc<Adapter>)>;

/// What is known.
#[derive(Default)]
pub struct Adapters(Mutex<Known>);

/// Why a kind has no adapter.
pub enum NoAdapter {
    /// There is no such kind.
    NoKind(String),
    /// It says nothing of use about external etcd.
    NoAnnotation(String),
}

impl Adapters {
    /// The adapter of the kind that a Cluster refers to. A kind that is not built in costs a request now and then.
    ///
    /// # Errors
    /// The API server does not answer. The inner error is for a person to cure.
    pub async fn find(&self, kinds: &Kinds, reference: &Reference) -> Result<Result<Arc<Adapter>, NoAdapter>> {
        let key = (reference.group.clone(), reference.kind.clone());
        if let Some((at, adapter)) = self.lock().get(&key)
            && (adapter.kubeadm || at.elapsed() < TTL)
        {
            return Ok(Ok(adapter.clone()));
        }
        let adapter = match Adapter::built_in(reference) {
            Some(adapter) => adapter,
            None => match kinds.annotations(&reference.group, &reference.kind).await {
                Ok(annotations) => match Adapter::announced(reference, &annotations) {
                    Ok(adapter) => adapter,
                    Err(message) => return Ok(Err(NoAdapter::NoAnnotation(message))),
                },
                Err(error) if KindError::is_users(&error) => return Ok(Err(NoAdapter::NoKind(error.to_string()))),
                Err(error) => return Err(Error::from(error)),
            },
        };
        let adapter = Arc::new(adapter);
        self.lock().insert(key, (Instant::now(), adapter.clone()));
        Ok(Ok(adapter))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
