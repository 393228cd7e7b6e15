//! What a reconcile works with.

use crate::{crd::LocalMachine, hardware::Hardware};
use controller_support::{Cached, Events, Shared, WriteCache};
use std::sync::Arc;

/// What a reconcile of a LocalMachine works with.
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) hardware: Arc<dyn Hardware>,
    pub(crate) machines: Cached,
    pub(crate) clusters: Cached,
    pub(crate) events: Events,
    pub(crate) written: WriteCache<LocalMachine>,
}
