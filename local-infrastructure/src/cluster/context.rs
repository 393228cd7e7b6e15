//! What a reconcile works with.

use crate::{crd::LocalCluster, hardware::Hardware};
use controller_support::{Cached, Shared, WriteCache};
use std::sync::Arc;

/// What a reconcile of a LocalCluster works with.
pub(super) struct Context {
    pub(super) shared: Shared,
    pub(super) hardware: Arc<dyn Hardware>,
    pub(super) clusters: Cached,
    pub(super) written: WriteCache<LocalCluster>,
}
