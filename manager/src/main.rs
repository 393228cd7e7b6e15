//! The manager of cluster-api-provider-etcdadm.

use clap::Parser;
use manager::flags::Flags;
use std::process::ExitCode;

fn main() -> ExitCode {
    match manager::process::run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manager: {error:#}");
            ExitCode::FAILURE
        }
    }
}
