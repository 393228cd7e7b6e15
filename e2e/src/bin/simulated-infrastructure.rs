//! Simulated machines and members in place of `local-infrastructure`. Beds with many clusters start this program.

use clap::Parser;
use e2e::simulated::{Arguments, run};
use e2e::world::block_on;
use std::process::ExitCode;

fn main() -> ExitCode {
    match block_on(run(Arguments::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
