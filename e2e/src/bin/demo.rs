//! Shows the whole thing on this computer; `hack/demo.sh` calls it.

use clap::Parser;
use e2e::demo;
use e2e::infrastructure::Infrastructure;
use e2e::world::{block_on, prepare_and_run};
use std::process::ExitCode;

/// Shows a TLS etcd cluster come up for a control plane, on real parts.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// End when everything has been shown. The exit code is not zero if anything failed.
    #[arg(long)]
    once: bool,
    /// What the machines are made of.
    #[arg(long, value_enum, default_value_t = Infrastructure::Local)]
    infrastructure: Infrastructure,
}

fn main() -> ExitCode {
    let Arguments { once, infrastructure } = Arguments::parse();
    prepare_and_run(
        |tools| infrastructure.prepare(tools),
        |world| {
            match infrastructure {
                Infrastructure::Local => block_on(demo::run(&world, once)),
                Infrastructure::Docker => block_on(demo::docker::run(&world, once)),
            }?;
            Ok(ExitCode::SUCCESS)
        },
    )
}
