//! Small commands around the test bed.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use e2e::docker::{Parts, runtime};
use e2e::own_release::OwnRelease;
use e2e::tools::{Etcd, Judge, Tools};

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
    /// What docker calls in place of runc, in a world on a computer that lacks CAP_SYS_RESOURCE.
    #[command(hide = true, disable_help_flag = true)]
    Runc {
        /// runc's arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Subcommand)]
enum ToolsCommand {
    /// Builds what is missing in the cache, and prints where everything is, as JSON.
    Build {
        /// Those of the docker infrastructure too, with the images of its machines; as root.
        #[arg(long)]
        docker: bool,
        /// Every version of etcd that the tests run on machines, not only the default one.
        #[arg(long)]
        all_etcd: bool,
        /// A release of this checkout, whose images a scenario with docker runs.
        #[arg(long)]
        release: bool,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Tools(ToolsCommand::Build { docker, all_etcd, release }) => build(docker, all_etcd, release),
        Command::Runc { arguments } => runtime::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build(docker: bool, all_etcd: bool, release: bool) -> anyhow::Result<()> {
    let tools = Tools::ensure()?;
    Judge::ensure()?;
    if all_etcd {
        Etcd::ALL.into_iter().try_for_each(Etcd::ensure)?;
    }
    println!("{}", serde_json::to_string_pretty(&tools)?);
    if docker {
        Parts::prepare(&tools)?;
    }
    if release {
        OwnRelease::make(&tools)?;
    }
    Ok(())
}
