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

use std::process::ExitCode;

use e2e::world::{enter_or_run, trial};

fn main() -> ExitCode {
    enter_or_run(|here| {
        let mut arguments = libtest_mimic::Arguments::from_args();
        // Every plane has the same ports.
        arguments.test_threads = Some(1);
        let tests = vec![
            trial(&here, "hooks_hand_etcd_over_and_follow_it", handover::hands_over),
            trial(&here, "hooks_are_killed_all_the_time", handover::killed_all_the_time),
            trial(&here, "hooks_serve_a_provider_that_publishes_itself_two_at_once", handover::publishes_itself),
            trial(&here, "hooks_say_what_has_to_be_corrected", handover::says_what_is_wrong),
            trial(&here, "hooks_hold_what_kubeadm_would_refuse", preconditions::hold),
            trial(&here, "hooks_tell_kubeadm_control_planes_how_etcd_is", health::tells),
            trial(&here, "hooks_tell_etcd_which_endpoints_are_in_use", rollout::in_use),
            trial(&here, "hooks_serve_any_control_plane_whose_crd_says_how", control_planes::any_kind),
            trial(&here, "hooks_serve_forks_that_have_the_field", forks::served),
            trial(&here, "hooks_follow_upgrades_of_other_providers", upgrades::followed),
            trial(&here, "hooks_and_a_gitops_loop_do_not_fight", gitops::restores),
            trial(&here, "hooks_delete_etcd_after_the_workers", deletion::workers_first),
            trial(&here, "hooks_let_a_deletion_finish_in_every_state", deletion::every_state),
        ];
        libtest_mimic::run(&arguments, tests).exit_code()
    })
}
