//! Shows the whole thing on this computer; `hack/demo.sh` calls it.

use clap::{Parser, ValueEnum};
use e2e::demo;
use e2e::docker::Parts;
use e2e::tools::Tools;
use e2e::world::{block_on, enter_or_run, is_outside};
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
    /// Containers of Cluster API's own docker infrastructure; as root.
    Docker,
}

fn main() -> ExitCode {
    let Arguments { once, infrastructure } = Arguments::parse();
    // Where there is no network any more, nothing can be fetched.
    if matches!(infrastructure, Infrastructure::Docker)
        && is_outside()
        && let Err(error) = Tools::ensure().and_then(|tools| Parts::ensure(&tools))
    {
        eprintln!("Error: {error:#}");
        return ExitCode::FAILURE;
    }
    enter_or_run(|world| {
        let shown = match infrastructure {
            Infrastructure::Local => block_on(demo::run(&world, once)),
            Infrastructure::Docker => block_on(demo::docker::run(&world, once)),
        };
        match shown {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("Error: {error:#}");
                ExitCode::FAILURE
            }
        }
    })
}
