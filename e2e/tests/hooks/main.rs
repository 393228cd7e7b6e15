//! The Cluster hook beside unmodified Cluster API. The scenarios play an etcd provider that is not ours: what works for it
//! works through the etcd-provider contract alone.

mod control_planes;
mod deletion;
mod forks;
mod gitops;
mod handover;
mod health;
mod preconditions;
mod rollout;
mod stage;
mod upgrades;

use e2e::scenarios::{Scenario, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let scenarios = vec![
        Scenario::of_a_world("hooks_hand_etcd_over_and_follow_it", handover::hands_over).alone(true),
        Scenario::of_a_world("hooks_are_killed_all_the_time", handover::killed_all_the_time),
        Scenario::of_a_world("hooks_serve_a_provider_that_publishes_itself_two_at_once", handover::publishes_itself),
        Scenario::of_a_world("hooks_say_what_has_to_be_corrected", handover::says_what_is_wrong),
        Scenario::of_a_world("hooks_hold_what_kubeadm_would_refuse", preconditions::hold),
        Scenario::of_a_world("hooks_tell_kubeadm_control_planes_how_etcd_is", health::tells),
        Scenario::of_a_world("hooks_tell_etcd_which_endpoints_are_in_use", rollout::in_use),
        Scenario::of_a_world("hooks_serve_any_control_plane_whose_crd_says_how", control_planes::any_kind),
        Scenario::of_a_world("hooks_serve_forks_that_have_the_field", forks::served),
        Scenario::of_a_world("hooks_follow_upgrades_of_other_providers", upgrades::followed),
        Scenario::of_a_world("hooks_and_a_gitops_loop_do_not_fight", gitops::restores),
        Scenario::of_a_world("hooks_delete_etcd_after_the_workers", deletion::workers_first),
        Scenario::of_a_world("hooks_let_a_deletion_finish_in_every_state", deletion::every_state),
    ];
    run(scenarios, Ok)
}
