//! A Machine joins the present etcd cluster.
//!
//! The data is made only once. After a restore, a watch that lags behind still has the ID of the earlier etcd cluster,
//! and a machine with that ID would never join.

use super::{Plan, Step};
use crate::observation::{Need, Observation};

/// `Err`: the init Secret is read live first, and then everything is planned again.
pub(super) fn join(observation: &Observation) -> Result<(), Plan> {
    if observation.init_is_live { Ok(()) } else { Err(Plan::Do(Step::Read(Need::InitSecret))) }
}
