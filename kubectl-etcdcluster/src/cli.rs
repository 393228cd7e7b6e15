//! The command line.

use crate::commands::{complete, completion, doctor, logs, moving, plan, report, rollout, status, watch, why};
use crate::connection::Options;
use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "kubectl-etcdcluster", bin_name = "kubectl etcdcluster", version, about = ABOUT, after_help = MORE)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
    /// Which API server
    #[command(flatten, next_help_heading = "Connection")]
    pub options: Options,
}

const ABOUT: &str = "See how a managed etcd cluster is, what holds it up, and what an edit would do";
const MORE: &str = "The page docs/kubectl-plugin.md of the project has examples of what is printed.";

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show an EtcdCluster with its Machines and members, and what it waits for; or all of the namespace in short
    Status(status::Arguments),
    /// Show the same, again whenever something changes, until Ctrl-C
    Watch(watch::Arguments),
    /// Explain what holds an EtcdCluster up: the rule, the evidence, the next deadline, and what you can do
    Why(why::Arguments),
    /// Tell what an edited manifest would do, without doing it: which Machines would be replaced, and how many there are
    Plan(plan::Arguments),
    /// Pause or resume an EtcdCluster, or have all its Machines replaced
    Rollout(rollout::Arguments),
    /// Move all Clusters of a namespace to another management cluster, with clusterctl
    Move(moving::Arguments),
    /// Check an EtcdCluster, a manifest before it is applied, or the installation alone
    Doctor(doctor::Arguments),
    /// Print the manager's log lines about an EtcdCluster, and how to get at the consoles of its machines
    Logs(logs::Arguments),
    /// Collect what a bug report needs, without secrets, in one file
    Report(report::Arguments),
    /// Print the completion script of a shell
    Completion(completion::Arguments),
    /// Complete the words of a command line, for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(complete::Arguments),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// They say what went wrong, in words for users.
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Status(arguments) => status::run(arguments, &self.options).await,
            Command::Watch(arguments) => watch::run(arguments, &self.options).await,
            Command::Why(arguments) => why::run(arguments, &self.options).await,
            Command::Plan(arguments) => plan::run(arguments, &self.options).await,
            Command::Rollout(arguments) => rollout::run(arguments, &self.options).await,
            Command::Move(arguments) => moving::run(arguments, &self.options).await,
            Command::Doctor(arguments) => doctor::run(arguments, &self.options).await,
            Command::Logs(arguments) => logs::run(arguments, &self.options).await,
            Command::Report(arguments) => report::run(arguments, &self.options).await,
            Command::Completion(arguments) => Ok(completion::run(&arguments)),
            Command::Complete(arguments) => Ok(complete::run(arguments).await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn help(path: &[&str]) -> String {
        let mut command = Cli::command();
        command.build();
        let found = path.iter().fold(&mut command, |command, name| command.find_subcommand_mut(name).unwrap());
        found.render_long_help().to_string()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_of_every_command() {
        let paths: [&[&str]; 14] = [
            &[],
            &["status"],
            &["watch"],
            &["why"],
            &["plan"],
            &["rollout"],
            &["rollout", "pause"],
            &["rollout", "resume"],
            &["rollout", "restart"],
            &["move"],
            &["doctor"],
            &["logs"],
            &["report"],
            &["completion"],
        ];
        let all = paths.map(|path| format!("==== {}\n{}", path.join(" "), help(path)));
        insta::assert_snapshot!(all.join("\n"));
    }

    /// The command lines of this program in the code blocks of the documentation.
    fn documented() -> Vec<String> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages = ["docs", "docs/tasks"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
        let pages = pages.into_iter().flatten().map(|entry| entry.unwrap().path()).chain([root.join("README.md")]);
        let mut found = Vec::new();
        for page in pages.filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
            let text = std::fs::read_to_string(page).unwrap();
            let blocks = text.split("```").skip(1).step_by(2).flat_map(str::lines);
            let lines =
                blocks.filter_map(|line| line.trim().trim_start_matches("$ ").strip_prefix("kubectl etcdcluster"));
            found.extend(lines.filter(|line| line.starts_with(' ')).map(str::to_owned));
        }
        found
    }

    #[test]
    fn every_documented_command_line_is_one() {
        let lines = documented();
        assert!(lines.len() > 10, "{lines:?}");
        for line in lines {
            let words = line.split_whitespace().take_while(|word| !matches!(*word, "|" | ">" | "#" | "&&"));
            if let Err(error) = Cli::try_parse_from(["kubectl-etcdcluster"].into_iter().chain(words)) {
                panic!("kubectl etcdcluster{line}: {error}");
            }
        }
    }

    #[test]
    fn flags_stand_anywhere_as_with_kubectl() {
        let parsed = Cli::try_parse_from(["kubectl-etcdcluster", "-n", "a", "status", "demo", "-o", "json"]).unwrap();
        assert_eq!(parsed.options.namespace.as_deref(), Some("a"));
        let parsed = Cli::try_parse_from(["kubectl-etcdcluster", "rollout", "pause", "demo", "-n", "b"]).unwrap();
        assert_eq!(parsed.options.namespace.as_deref(), Some("b"));
        for wrong in [
            &["status", "demo", "-A"][..],
            &["why"],
            &["plan"],
            &["rollout", "pause"],
            &["report"],
            &["move"],
            &["doctor", "demo", "-f", "x"],
            &["doctor", "--dial"],
            &["doctor", "-f", "x", "--dial"],
        ] {
            let line = ["kubectl-etcdcluster"].iter().chain(wrong);
            assert!(Cli::try_parse_from(line).is_err(), "{wrong:?}");
        }
    }
}
