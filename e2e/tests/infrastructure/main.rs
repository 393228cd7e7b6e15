//! Machines of namespaces as infrastructure of unmodified Cluster API.

mod scene;
mod stories;

use e2e::world::{enter_or_run, trial};

fn main() -> std::process::ExitCode {
    enter_or_run(|here| {
        let mut arguments = libtest_mimic::Arguments::from_args();
        // They share the ports of one management plane.
        arguments.test_threads = Some(1);
        let tests = vec![
            trial(&here, "infrastructure_provisions_boots_and_removes_a_machine", stories::life_of_a_machine),
            trial(&here, "infrastructure_is_cloned_from_a_template", stories::template),
            trial(&here, "infrastructure_reports_bootstrap_data_that_fails", stories::failing_data),
            trial(&here, "infrastructure_respects_a_pause", stories::pause),
            trial(&here, "infrastructure_outlives_its_controller", stories::controller_killed),
        ];
        libtest_mimic::run(&arguments, tests).exit_code()
    })
}
