//! `etcdadm`: makes this machine a member of an etcd cluster. See `docs/etcdadm.md`.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let command_line = match etcdadm::cli::parse(std::env::args_os()) {
        Ok(command_line) => command_line,
        Err(refusal) => {
            // Help and version texts arrive here too; clap knows which stream and code each one has.
            let code = refusal.exit_code();
            let _ = refusal.print();
            return ExitCode::from(u8::try_from(code).unwrap_or(2));
        }
    };
    etcdadm::progress::start(command_line.log_level);
    match etcdadm::run(command_line.command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
