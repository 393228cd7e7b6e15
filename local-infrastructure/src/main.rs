//! The program. The library does its work.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match local_infrastructure::cli::run(local_infrastructure::cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
