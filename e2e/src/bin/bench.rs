//! Measures what this project promises; `make bench` calls it.

use clap::Parser;
use e2e::bench;
use e2e::infrastructure::Infrastructure;
use e2e::tools::Judge;
use e2e::world::{block_on, prepare_and_run};
use std::process::ExitCode;

/// Measures bring-up, API requests, the manager's size, start and memory, and the cost of a reconcile beside many objects.
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    /// Bring-ups of each kind; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where clusters are brought up. Requests, size and memory are measured on the local one.
    #[arg(long, value_enum, default_value_t = Infrastructure::Local)]
    infrastructure: Infrastructure,
    /// Only the cost of a reconcile, on the local one. It is an error if that grows with the number of other clusters.
    #[arg(long)]
    reconciles: bool,
    /// Only the manager beside so many clusters of three simulated members: `10,100` measures it beside 10, and then
    /// beside 90 more.
    #[arg(long, value_delimiter = ',', conflicts_with = "reconciles")]
    clusters: Vec<usize>,
}

fn main() -> ExitCode {
    let Arguments { rounds, infrastructure, reconciles, clusters } = Arguments::parse();
    prepare_and_run(
        |tools| {
            infrastructure.prepare(tools)?;
            // A history of clients in a rollout needs the judge, although nothing is judged here.
            if infrastructure == Infrastructure::Local && clusters.is_empty() && !reconciles {
                Judge::ensure()?;
            }
            Ok(())
        },
        |world| {
            match infrastructure {
                _ if !clusters.is_empty() => block_on(bench::clusters(&world, &clusters)),
                _ if reconciles => block_on(bench::reconciles(&world)),
                Infrastructure::Local => block_on(bench::run(&world, rounds)),
                Infrastructure::Docker => block_on(bench::docker::run(&world, rounds)),
            }?;
            Ok(ExitCode::SUCCESS)
        },
    )
}
