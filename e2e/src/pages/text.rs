//! Code in the text of a page, between backticks, and the commands among it.

use std::mem;

/// Programs that readers of the pages run, and how many words name a command of each. What is longer is typed:
/// `kubectl replace` only names a command, and `kubectl replace -f FILE` is one. A program with a slash at its end
/// stands for all programs of that folder.
const PROGRAMS: [(&str, usize); 28] = [
    ("kubectl etcdcluster", 3),
    ("kubectl", 2),
    ("clusterctl generate", 3),
    ("clusterctl", 2),
    ("etcdadm", 2),
    ("etcdctl", 3),
    ("etcdctl.sh", 1),
    ("etcdutl", 3),
    ("/opt/bin/", 1),
    ("local-infrastructure", 2),
    ("manager", 1),
    ("hack/", 1),
    ("target/", 1),
    ("make", 1),
    ("cargo", 2),
    ("go clean", 2),
    ("go mod", 2),
    ("bash", 1),
    ("docker", 2),
    ("kind", 1),
    ("skopeo", 1),
    ("crane", 1),
    ("openssl", 1),
    ("systemctl", 2),
    ("journalctl", 1),
    ("sysctl", 1),
    ("ssh", 1),
    ("tar", 1),
];

/// A part of a page that code does not go beyond: a paragraph, an item of a list, a row of a table.
#[derive(Default)]
pub(super) struct Paragraph(String);

impl Paragraph {
    /// Adds a line, and returns the commands of the part before it if the line begins a new one.
    pub(super) fn line(&mut self, line: &str) -> Vec<String> {
        let line = line.trim();
        let ended = if begins_anew(line) { self.end() } else { Vec::new() };
        self.0.push_str(line);
        self.0.push(' ');
        ended
    }

    /// Ends this part, and returns its commands.
    pub(super) fn end(&mut self) -> Vec<String> {
        let text = mem::take(&mut self.0);
        code(&text).into_iter().filter(|code| is_command(code)).collect()
    }
}

/// Whether a line does not go on with what the line before it has begun.
fn begins_anew(line: &str) -> bool {
    let is_item = || {
        let rest = line.trim_start_matches(|digit: char| digit.is_ascii_digit());
        line.starts_with("- ") || (rest.len() < line.len() && rest.starts_with(". "))
    };
    line.is_empty() || line.starts_with(['|', '#']) || is_item()
}

/// The code in a text. A backtick without a second one is only a backtick.
fn code(text: &str) -> Vec<String> {
    let pieces: Vec<&str> = text.split('`').collect();
    let pairs = pieces[..pieces.len() - 1].chunks_exact(2);
    // In a row of a table, a bar has a backslash before it.
    pairs.map(|pair| pair[1].replace("\\|", "|")).collect()
}

/// Whether code is a command of a program that readers run, with arguments.
fn is_command(code: &str) -> bool {
    let all: Vec<&str> = code.split_whitespace().collect();
    // Variables may be set for the command.
    let typed = &all[all.iter().take_while(|word| is_assignment(word)).count()..];
    let is_it = |(program, _): &&(&str, usize)| match program.strip_suffix('/') {
        Some(_) => typed.first().is_some_and(|word| word.starts_with(program)),
        None => typed.starts_with(&program.split(' ').collect::<Vec<_>>()),
    };
    PROGRAMS.iter().find(is_it).is_some_and(|(_, name)| all.len() > *name)
}

fn is_assignment(word: &str) -> bool {
    let is_of_a_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_of_a_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_arguments_and_a_name_has_none() {
        for command in [
            "kubectl delete -k config/default",
            "kubectl etcdcluster why NAME",
            "clusterctl upgrade apply --bootstrap etcdadm:VERSION",
            "clusterctl generate cluster NAME --list-variables",
            "/opt/bin/etcdctl.sh alarm disarm",
            "etcdctl.sh defrag --cluster",
            "hack/test.sh --unit",
            "make release",
            "ARCHITECTURES=amd64 make release",
            "E2E_SABOTAGE=NAME hack/sabotage.sh",
        ] {
            assert!(is_command(command), "{command}");
        }
        for name in [
            "kubectl replace",
            "kubectl etcdcluster move",
            "clusterctl generate cluster",
            "etcdctl member remove",
            "hack/test.sh",
            "make",
            "go to 3.5.32 first",
            "mode: Report",
            "",
        ] {
            assert!(!is_command(name), "{name}");
        }
    }

    #[test]
    fn code_ends_with_its_part_of_the_page() {
        let mut paragraph = Paragraph::default();
        let mut found = Vec::new();
        let rows = ["| `make a\\|b` | a ` alone |", "| `make c` |"];
        for line in rows.iter().chain(&["1. run `make", "   d`", "2. and a ` here", "- and `make e`", "", "`make f`"]) {
            found.extend(paragraph.line(line));
        }
        found.extend(paragraph.end());
        assert_eq!(found, ["make a|b", "make c", "make d", "make e", "make f"]);
    }
}
