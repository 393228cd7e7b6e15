//! Small commands around the test bed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e::tools::Tools;

/// The test bed of cluster-api-provider-etcdadm.
#[derive(Parser)]
#[command(name = "e2e")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The real parts: etcd, Kubernetes, Cluster API.
    #[command(subcommand)]
    Tools(ToolsCommand),
}

#[derive(Subcommand)]
enum ToolsCommand {
    /// Builds what is missing in the cache, and prints where everything is, as JSON.
    Build,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Tools(ToolsCommand::Build) => match build() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("Error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn build() -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(&Tools::ensure()?)?);
    Ok(())
}
