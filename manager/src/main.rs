//! The manager of cluster-api-provider-etcdadm.

use manager::flags::Flags;
use std::process::ExitCode;

fn main() -> ExitCode {
    let flags = Flags::from_arguments(std::env::args_os()).unwrap_or_else(|error| error.exit());
    match manager::process::run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manager: {error:#}");
            ExitCode::FAILURE
        }
    }
}
