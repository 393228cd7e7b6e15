//! `completion`: the completion script of a shell.

use crate::cli::Cli;
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use std::io::stdout;
use std::process::ExitCode;

/// Arguments of `completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "It completes the program's own name, kubectl-etcdcluster. For example:
  source <(kubectl etcdcluster completion bash)")]
pub struct Arguments {
    /// Shell to print it for
    pub shell: Shell,
}

/// Prints the script.
#[must_use]
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut command = Cli::command().bin_name(PROGRAM);
    generate(arguments.shell, &mut command, PROGRAM, &mut stdout());
    ExitCode::SUCCESS
}

const PROGRAM: &str = "kubectl-etcdcluster";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_gets_every_command() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            generate(*shell, &mut Cli::command().bin_name(PROGRAM), PROGRAM, &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["status", "watch", "why", "plan", "rollout", "restart", "move", "doctor", "logs", "report"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
