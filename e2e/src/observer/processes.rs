//! The settings with which etcd processes were started. In a world, all processes are visible from outside their
//! machines.

use super::record::{Event, Process};
use super::recorder::Recorder;
use std::collections::BTreeMap;
use std::path::Path;

/// etcd's flag, and its name before etcd 3.6.
const FLAGS: [&str; 2] = ["max-learners", "experimental-max-learners"];
/// etcd's own default.
const DEFAULT: u32 = 1;

/// Records the settings of every etcd process that serves clients over TLS. A process that ends meanwhile, or belongs
/// to another user, is skipped.
pub(super) fn look(recorder: &Recorder) {
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in numbers.map(|entry| entry.path()) {
        if is_etcd(&process)
            && let Some(told) = settings(&process)
        {
            recorder.note(Event::Process(told));
        }
    }
}

fn is_etcd(process: &Path) -> bool {
    let program = std::fs::read_link(process.join("exe"));
    program.is_ok_and(|program| program.file_name().is_some_and(|name| name == "etcd"))
}

fn settings(process: &Path) -> Option<Process> {
    let words = |file: &str| {
        let text = std::fs::read(process.join(file)).ok()?;
        Some(text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>())
    };
    told(&words("cmdline")?, &words("environ")?)
}

/// etcd takes a flag from its command line, else from its environment.
fn told(arguments: &[String], environment: &[String]) -> Option<Process> {
    let mut flags = BTreeMap::new();
    for variable in environment {
        if let Some((name, value)) = variable.strip_prefix("ETCD_").and_then(|rest| rest.split_once('=')) {
            flags.insert(name.to_lowercase().replace('_', "-"), value.to_owned());
        }
    }
    let mut arguments = arguments.iter().peekable();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix('-').map(|flag| flag.trim_start_matches('-')) else { continue };
        match flag.split_once('=') {
            Some((name, value)) => drop(flags.insert(name.to_owned(), value.to_owned())),
            None => {
                if let Some(value) = arguments.next_if(|next| !next.starts_with('-')) {
                    flags.insert(flag.to_owned(), value.clone());
                }
            }
        }
    }
    let url = flags.get("advertise-client-urls")?.split(',').find(|url| url.starts_with("https://"))?.to_owned();
    let limit = FLAGS.iter().find_map(|flag| flags.get(*flag)?.parse().ok());
    Some(Process { url, max_learners: limit.unwrap_or(DEFAULT) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_variables_and_strangers_are_passed_over() {
        let told = |arguments: &[&str], environment: &[&str]| {
            let text = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            told(&text(arguments), &text(environment)).map(|told| (told.url, told.max_learners))
        };
        let url = "ETCD_ADVERTISE_CLIENT_URLS=https://10.0.0.1:2379";
        let at = |limit| Some(("https://10.0.0.1:2379".to_owned(), limit));
        assert_eq!(told(&["etcd"], &[url, "ETCD_MAX_LEARNERS=3"]), at(3));
        assert_eq!(told(&["etcd", "--max-learners", "2"], &[url, "ETCD_MAX_LEARNERS=3"]), at(2));
        assert_eq!(told(&["etcd", "--experimental-max-learners=4", "--x", "--y"], &[url]), at(4));
        assert_eq!(told(&["etcd"], &[url]), at(1));
        assert_eq!(told(&["etcd", "--advertise-client-urls=http://127.0.0.1:2379"], &[]), None);
        assert_eq!(told(&["etcd"], &[]), None);
    }
}
