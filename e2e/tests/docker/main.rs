//! The loop with Docker: unmodified Cluster API with its docker infrastructure, systemd in the machines, real etcd.

mod etcd;

use e2e::docker::Parts;
use e2e::tools::Tools;
use e2e::world::{enter_or_run, is_outside, trial};
use libtest_mimic::Arguments;
use std::process::ExitCode;

fn main() -> ExitCode {
    if is_outside()
        && let Err(error) = Tools::ensure().and_then(|tools| Parts::ensure(&tools))
    {
        eprintln!("Error: {error:#}");
        return ExitCode::FAILURE;
    }
    enter_or_run(|world| {
        let mut arguments = Arguments::from_args();
        arguments.test_threads = Some(1);
        let tests = vec![trial(&world, "etcd::three_members", etcd::three_members)];
        libtest_mimic::run(&arguments, tests).exit_code()
    })
}
