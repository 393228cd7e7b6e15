//! The bootstrap provider alone, against a real API server: the scenarios play Cluster API and the etcd provider, so
//! that they can stop at every point in between.

mod boot;
mod scenarios;
mod stage;

use std::process::ExitCode;

use e2e::world::{enter_or_run, trial};

fn main() -> ExitCode {
    enter_or_run(|here| {
        let mut arguments = libtest_mimic::Arguments::from_args();
        // Every plane has the same ports.
        arguments.test_threads = Some(1);
        let tests = vec![
            trial(&here, "bootstrap_data_with_every_field_boots", boot::every_field),
            trial(&here, "bootstrap_one_of_two_initializes_and_the_other_joins", scenarios::one_initializes),
            trial(&here, "bootstrap_costs_few_requests_and_none_afterwards", scenarios::costs_little),
            trial(&here, "bootstrap_takes_the_lock_over_from_a_machine_that_is_gone", scenarios::takes_over),
            trial(&here, "bootstrap_never_initializes_twice", scenarios::never_twice),
            trial(&here, "bootstrap_never_initializes_twice_when_the_lock_is_lost", scenarios::lock_lost_in_between),
            trial(&here, "bootstrap_never_initializes_twice_without_an_etcd_cluster", scenarios::free_standing),
            trial(&here, "bootstrap_goes_on_where_it_was_killed", scenarios::goes_on),
            trial(&here, "bootstrap_leaves_a_foreign_secret_alone", scenarios::leaves_foreign_alone),
            trial(&here, "bootstrap_waits_for_secrets_of_files", scenarios::waits_for_files),
            trial(&here, "bootstrap_respects_a_pause", scenarios::respects_pause),
            trial(&here, "bootstrap_survives_an_outage_of_the_api_server", scenarios::survives_an_outage),
        ];
        libtest_mimic::run(&arguments, tests).exit_code()
    })
}
