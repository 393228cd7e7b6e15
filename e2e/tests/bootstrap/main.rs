//! The bootstrap provider alone, with a real API server. The scenarios act as Cluster API and the etcd provider, so
//! that they can stop at every point in between.

mod boot;
mod lag;
mod scenarios;
mod stage;

use e2e::scenarios::{Scenario, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let scenarios = vec![
        Scenario::of_a_world("bootstrap_data_with_every_field_boots", boot::every_field),
        Scenario::of_a_world("bootstrap_data_starts_no_etcd_on_a_reinstalled_machine", boot::reinstalled),
        Scenario::of_a_world("bootstrap_one_of_two_initializes_and_the_other_joins", scenarios::one_initializes),
        Scenario::of_a_world("bootstrap_costs_few_requests_and_none_afterwards", scenarios::costs_little),
        Scenario::of_a_world("bootstrap_takes_the_lock_over_from_a_machine_that_is_gone", scenarios::takes_over),
        Scenario::of_a_world("bootstrap_never_initializes_twice", scenarios::never_twice),
        Scenario::of_a_world(
            "bootstrap_never_initializes_twice_when_the_lock_is_lost",
            scenarios::lock_lost_in_between,
        ),
        Scenario::of_a_world("bootstrap_never_initializes_twice_without_an_etcd_cluster", scenarios::free_standing),
        Scenario::of_a_world(
            "bootstrap_joins_the_etcd_of_now_although_a_watch_lags",
            scenarios::joins_what_is_there_now,
        ),
        Scenario::of_a_world("bootstrap_goes_on_where_it_was_killed", scenarios::goes_on),
        Scenario::of_a_world("bootstrap_leaves_what_is_foreign_alone", scenarios::leaves_foreign_alone),
        Scenario::of_a_world("bootstrap_waits_for_secrets_of_files", scenarios::waits_for_files),
        Scenario::of_a_world("bootstrap_respects_a_pause", scenarios::respects_pause),
        Scenario::of_a_world("bootstrap_survives_an_outage_of_the_api_server", scenarios::survives_an_outage),
    ];
    run(scenarios, Ok)
}
