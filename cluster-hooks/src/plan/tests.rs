//! Golden scenarios, and properties over random interleavings.

use super::*;
use crate::model::{ENDPOINTS, World};
use api::names;
use serde_json::json;

mod deletion;
mod handover;
mod preconditions;
mod properties;
mod remediation;
mod rollout;

/// The steps of an undisturbed handover, by name.
const HANDOVER: [&str; 6] =
    ["ClaimEtcd", "Pause", "RecordEndpointsInUse", "WriteEndpoints", "PublishClient", "Unpause"];

fn name(step: &Step) -> String {
    format!("{step:?}").split('(').next().unwrap_or_default().to_owned()
}
