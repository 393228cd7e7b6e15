//! Machines made of kernel namespaces as infrastructure of unmodified Cluster API.

mod scene;
mod stories;

use e2e::scenarios::{Scenario, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let scenarios = vec![
        Scenario::of_a_world("infrastructure_provisions_boots_and_removes_a_machine", stories::life_of_a_machine),
        Scenario::of_a_world("infrastructure_is_cloned_from_a_template", stories::template),
        Scenario::of_a_world("infrastructure_reports_bootstrap_data_that_fails", stories::failing_data),
        Scenario::of_a_world("infrastructure_respects_a_pause", stories::pause),
        Scenario::of_a_world("infrastructure_outlives_its_controller", stories::controller_killed),
    ];
    run(scenarios, Ok)
}
