//! Golden scenarios, and properties over random interleavings.

use super::*;
use crate::fixture::{ENDPOINTS, World};
use api::names;
use serde_json::json;

mod deletion;
mod handover;
mod preconditions;
mod properties;

mod rollout;

/// The steps of an undisturbed handover, by name.
const HANDOVER: [&str; 7] =
    ["ClaimEtcd", "Announce", "Pause", "RecordEndpointsInUse", "WriteEndpoints", "PublishClient", "Unpause"];

fn name(step: &Step) -> String {
    step.to_string()
}
