//! The test bed itself: a world is separate from the host, and its plane does what a management cluster does.

mod plane;
mod simulated;
mod world;

use e2e::scenarios::Durations;
use e2e::world::{enter_or_run, trial};
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    enter_or_run(|here| {
        if std::env::var_os(world::SLEEPER).is_some() {
            return world::sleep(&here);
        }
        let mut arguments = libtest_mimic::Arguments::from_args();
        // Every world has its own ports, and these tests share one world.
        arguments.test_threads = Some(1);
        let durations: Arc<Durations> = Arc::default();
        let tests = vec![
            trial(&durations, &here, "world_has_its_own_network_processes_and_run", world::is_apart),
            trial(&durations, &here, "world_collects_orphans", world::collects_orphans),
            trial(&durations, &here, "world_ends_with_the_process_outside", world::ends_with_the_process_outside),
            trial(
                &durations,
                &here,
                "world_is_asked_to_end_and_its_logs_stay",
                world::is_asked_to_end_and_its_logs_stay,
            ),
            trial(
                &durations,
                &here,
                "world_ends_with_frozen_processes_and_leaves_no_group",
                world::ends_with_frozen_processes_and_leaves_no_group,
            ),
            trial(&durations, &here, "plane_is_ready", plane::is_ready),
            trial(&durations, &here, "plane_converts_and_validates_clusters", plane::converts_and_validates_clusters),
            trial(&durations, &here, "plane_collects_garbage_of_new_kinds_too", plane::collects_garbage),
            trial(&durations, &here, "plane_deletes_namespaces", plane::deletes_namespaces),
            trial(&durations, &here, "plane_counts_requests_by_user", plane::counts_requests),
            trial(&durations, &here, "plane_survives_an_outage_of_its_api_server", plane::survives_an_outage),
            trial(&durations, &here, "simulated_member_answers_as_etcd_does", simulated::answers_as_etcd_does),
        ];
        let conclusion = libtest_mimic::run(&arguments, tests);
        print!("{durations}");
        conclusion.exit_code()
    })
}
