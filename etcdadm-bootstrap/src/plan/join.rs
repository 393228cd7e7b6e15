//! A Machine joins the etcd cluster that there is now.
//!
//! The data is made once. After a restore, a watch that lags behind still has the ID of the etcd cluster of before: a machine
//! with that ID would never join.

use super::{Plan, Step};
use crate::observation::{Need, Observation};

/// `Err`: the init Secret is read live first, and everything is planned again from what that says.
pub(super) fn join(observation: &Observation) -> Result<(), Plan> {
    if observation.init_is_live { Ok(()) } else { Err(Plan::Do(Step::Read(Need::InitSecret))) }
}
