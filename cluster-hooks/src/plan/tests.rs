//! Golden scenarios, and properties over random interleavings.

use super::*;
use crate::fixture::{ENDPOINTS, World};
use api::names;
use serde_json::json;

mod claiming;
mod client_secret;
mod deletion;
mod handover;
mod overwritten;
mod pauses;
mod preconditions;
mod properties;
mod rollout;

/// The steps of an undisturbed handover, by name.
const HANDOVER: [&str; 7] =
    ["ClaimEtcd", "Announce", "Pause", "RecordEndpointsInUse", "WriteEndpoints", "PublishClient", "Unpause"];

fn name(step: &Step) -> String {
    step.to_string()
}

/// Etcd has been handed over, and the control plane has machines.
fn running() -> World {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.control_plane.as_mut().unwrap()["status"]["initialization"] = json!({"controlPlaneInitialized": true});
    world.settle();
    world
}
