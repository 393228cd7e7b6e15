//! The Cluster hook beside unmodified Cluster API. The scenarios act as an etcd provider that is not ours, so they show
//! what works through the etcd-provider contract alone.

mod control_planes;
mod deletion;
mod forks;
mod gitops;
mod handover;
mod health;
mod hook;
mod lane;
mod preconditions;
mod rollout;
mod stage;
mod upgrades;

use anyhow::Result;
use e2e::scenarios::{Scenario, run};
use futures::future::LocalBoxFuture;
use lane::{Lane, On};
use stage::Stage;
use std::process::ExitCode;

/// A scenario, the plane that it runs on, and its steps.
macro_rules! scenario {
    ($name:literal, $on:ident, $module:ident :: $function:ident) => {{
        fn steps(stage: &mut Stage) -> LocalBoxFuture<'_, Result<()>> {
            Box::pin($module::$function(stage))
        }
        Scenario::new($name, |lane: &mut Lane| lane.run($name, On::$on, steps))
    }};
}

fn main() -> ExitCode {
    // Scenarios that share a plane come first, so that each lane starts one plane for them. In both groups, the longest
    // come first.
    let scenarios = vec![
        scenario!("hooks_let_a_deletion_finish_in_every_state", Shared, deletion::every_state),
        scenario!("hooks_hold_what_kubeadm_would_refuse", Shared, preconditions::hold),
        scenario!("hooks_tell_kubeadm_control_planes_how_etcd_is", Shared, health::tells),
        scenario!("hooks_tell_etcd_which_endpoints_are_in_use", Shared, rollout::in_use),
        scenario!("hooks_delete_etcd_after_the_workers", Shared, deletion::workers_first),
        scenario!("hooks_serve_a_provider_that_publishes_itself_two_at_once", Shared, handover::publishes_itself),
        scenario!("hooks_say_what_has_to_be_corrected", Shared, handover::says_what_is_wrong),
        // Its admission policies apply to every namespace.
        scenario!("hooks_and_a_gitops_loop_do_not_fight", Own, gitops::restores),
        // It changes CRDs, and permissions for the kinds of all scenarios.
        scenario!("hooks_serve_any_control_plane_whose_crd_says_how", Own, control_planes::any_kind),
        // It ends dozens of hooks at any point, and removing its Clusters would take longer than starting a plane.
        scenario!("hooks_are_killed_all_the_time", Own, handover::killed_all_the_time),
        // It stops serving versions.
        scenario!("hooks_follow_upgrades_of_other_providers", Own, upgrades::followed),
        // It changes the CRD of Clusters.
        scenario!("hooks_serve_forks_that_have_the_field", Own, forks::served),
        // It counts the requests of a whole handover, so nothing else may have happened on its plane.
        scenario!("hooks_hand_etcd_over_and_follow_it", Own, handover::hands_over).alone(true),
    ];
    run(scenarios, Lane::new)
}
