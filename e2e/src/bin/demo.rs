//! Shows the whole thing on this computer; `hack/demo.sh` calls it.

use clap::{Parser, ValueEnum};
use e2e::world::{block_on, enter_or_run};
use std::process::ExitCode;

/// Shows a TLS etcd cluster come up for a control plane, on real parts.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// End by itself when all has been shown; not with zero if anything failed.
    #[arg(long)]
    once: bool,
    /// What the machines are made of.
    #[arg(long, value_enum, default_value_t = Infrastructure::Local)]
    infrastructure: Infrastructure,
}

#[derive(Clone, Copy, ValueEnum)]
enum Infrastructure {
    /// Linux namespaces on this computer.
    Local,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Infrastructure::Local = arguments.infrastructure;
    enter_or_run(|world| match block_on(e2e::demo::run(&world, arguments.once)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    })
}
