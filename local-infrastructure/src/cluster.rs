//! LocalClusters: an address for the API servers, ready at once.

mod controller;
mod execute;
mod observe;
mod plan;
mod status;

use crate::{crd::LocalCluster, hardware::Hardware};
use controller_support::{Cached, Shared, WriteCache};
use std::sync::Arc;

pub(crate) use controller::run;

/// What a reconcile of a LocalCluster works with.
struct Context {
    shared: Shared,
    hardware: Arc<dyn Hardware>,
    clusters: Cached,
    written: WriteCache<LocalCluster>,
}
