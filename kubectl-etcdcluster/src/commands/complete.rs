//! `__complete`: kubectl runs it for the completions of a plugin, through a program `kubectl_complete-etcdcluster`. The
//! output has Cobra's format: one candidate per line, and a number at the end that says whether file names are
//! candidates too.

use crate::cli::Cli;
use crate::connection::Options;
use crate::reader::etcds;
use clap::{Arg, Command, CommandFactory};
use kube::ResourceExt;
use kube::api::ListParams;
use std::process::ExitCode;
use std::time::Duration;

/// A user who has pressed Tab waits no longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
/// Cobra's directives.
const FILES: &str = ":0";
const NO_FILES: &str = ":4";

/// Arguments of `__complete`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The words after `kubectl etcdcluster`, the one to be completed last
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Prints the candidates.
pub async fn run(arguments: Arguments) -> ExitCode {
    let candidates = candidates(&arguments.words);
    let (mut lines, directive) = match candidates {
        Candidates::Words(words) => (words, NO_FILES),
        Candidates::Files => (Vec::new(), FILES),
        Candidates::Names(options) => {
            let names = tokio::time::timeout(PATIENCE, names(&options)).await;
            (names.ok().and_then(anyhow::Result::ok).unwrap_or_default(), NO_FILES)
        }
    };
    let begun = arguments.words.last().map_or("", String::as_str);
    lines.retain(|candidate| candidate.starts_with(begun));
    lines.push(directive.to_owned());
    // If this fails, the failure cannot be reported to anybody.
    let _ = super::print(&lines);
    ExitCode::SUCCESS
}

/// The candidates for the last word.
enum Candidates {
    Words(Vec<String>),
    Files,
    /// Names of EtcdClusters in this namespace of this API server.
    Names(Options),
}

fn candidates(words: &[String]) -> Candidates {
    let (before, last) = match words.split_last() {
        Some((last, before)) => (before, last.as_str()),
        None => (words, ""),
    };
    let mut root = Cli::command();
    root.build();
    let mut command = &root;
    let mut options = Options::default();
    let mut words = before.iter();
    while let Some(word) = words.next() {
        if let Some(flag) = with_value(command, word) {
            // A flag at the end expects its value.
            let Some(value) = words.next() else { return values(flag) };
            match flag.get_id().as_str() {
                "namespace" => options.namespace = Some(value.clone()),
                "context" => options.context = Some(value.clone()),
                "kubeconfig" => options.kubeconfig = Some(value.into()),
                _ => {}
            }
        } else if let Some(next) = command.find_subcommand(word) {
            command = next;
        }
    }
    if last.starts_with('-') {
        let flags = command.get_arguments().filter_map(Arg::get_long);
        return Candidates::Words(flags.map(|flag| format!("--{flag}")).collect());
    }
    if command.has_subcommands() {
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        return Candidates::Words(shown.map(|command| command.get_name().to_owned()).collect());
    }
    match command.get_positionals().next() {
        Some(argument) if argument.get_id() == "name" => Candidates::Names(options),
        Some(argument) => values(argument),
        None => Candidates::Words(Vec::new()),
    }
}

/// The flag that a word is, if the flag takes its value from the next word.
fn with_value<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.strip_prefix('-')?;
    let is_it = |argument: &&Arg| match name.strip_prefix('-') {
        Some(long) => argument.get_long() == Some(long),
        None => name.len() == 1 && argument.get_short() == name.chars().next(),
    };
    command.get_arguments().find(is_it).filter(|argument| argument.get_action().takes_values())
}

/// The possible values of an argument. For an argument that names a file, they are file names.
fn values(argument: &Arg) -> Candidates {
    let values = argument.get_possible_values();
    let is_file =
        matches!(argument.get_id().as_str(), "filename" | "kubeconfig" | "to_kubeconfig" | "clusterctl" | "out");
    match values.is_empty() && is_file {
        true => Candidates::Files,
        false => Candidates::Words(values.iter().map(|value| value.get_name().to_owned()).collect()),
    }
}

async fn names(options: &Options) -> anyhow::Result<Vec<String>> {
    let connection = options.connect().await?;
    let etcds = etcds(&connection.client, Some(&connection.namespace));
    let list = etcds.list_metadata(&ListParams::default()).await?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match candidates(&words) {
            Candidates::Words(words) => words.join(" "),
            Candidates::Files => "files".to_owned(),
            Candidates::Names(options) => format!("names of {:?}", options.namespace),
        }
    }

    #[test]
    fn every_place_has_its_candidates() {
        assert_eq!(of(""), "status watch why plan rollout move doctor logs report completion help");
        assert_eq!(of("rollout "), "pause resume restart help");
        assert_eq!(of("rollout pause de"), "names of None");
        assert_eq!(of("-n a status "), "names of Some(\"a\")");
        assert_eq!(of("status --namespace status "), "names of Some(\"status\")");
        assert_eq!(of("status -o "), "table json yaml");
        assert_eq!(of("plan -f "), "files");
        assert_eq!(of("doctor -f "), "files");
        assert_eq!(of("doctor de"), "names of None");
        assert_eq!(of("move --to-kubeconfig "), "files");
        assert_eq!(of("report --out "), "files");
        assert_eq!(of("logs demo --tail "), "");
        assert_eq!(of("completion z"), "bash elvish fish powershell zsh");
        assert!(of("status --").contains("--all-namespaces") && of("status --").contains("--context"));
    }
}
