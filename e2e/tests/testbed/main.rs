//! The test bed itself: a world is separate from the host, and its plane does what a management cluster does.

mod plane;
mod simulated;
mod world;

use std::process::ExitCode;

use e2e::world::{enter_or_run, trial};

fn main() -> ExitCode {
    enter_or_run(|here| {
        if std::env::var_os(world::SLEEPER).is_some() {
            return world::sleep(&here);
        }
        let mut arguments = libtest_mimic::Arguments::from_args();
        // Every world has its own ports, and these tests share one world.
        arguments.test_threads = Some(1);
        let tests = vec![
            trial(&here, "world_has_its_own_network_processes_and_run", world::is_apart),
            trial(&here, "world_collects_orphans", world::collects_orphans),
            trial(&here, "world_ends_with_the_process_outside", world::ends_with_the_process_outside),
            trial(&here, "world_is_asked_to_end_and_its_logs_stay", world::is_asked_to_end_and_its_logs_stay),
            trial(
                &here,
                "world_ends_with_frozen_processes_and_leaves_no_group",
                world::ends_with_frozen_processes_and_leaves_no_group,
            ),
            trial(&here, "plane_is_ready", plane::is_ready),
            trial(&here, "plane_converts_and_validates_clusters", plane::converts_and_validates_clusters),
            trial(&here, "plane_collects_garbage_of_new_kinds_too", plane::collects_garbage),
            trial(&here, "plane_deletes_namespaces", plane::deletes_namespaces),
            trial(&here, "plane_counts_requests_by_user", plane::counts_requests),
            trial(&here, "plane_survives_an_outage_of_its_api_server", plane::survives_an_outage),
            trial(&here, "simulated_member_answers_as_etcd_does", simulated::answers_as_etcd_does),
        ];
        libtest_mimic::run(&arguments, tests).exit_code()
    })
}
