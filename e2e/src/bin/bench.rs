//! Measures what this project promises; `make bench` calls it.

use clap::Parser;
use e2e::world::{block_on, enter_or_run};
use std::process::ExitCode;

/// Measures bring-up, API requests, and the manager's size, start and memory.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    /// Bring-ups of each kind; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    enter_or_run(|world| match block_on(e2e::bench::run(&world, arguments.rounds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    })
}
