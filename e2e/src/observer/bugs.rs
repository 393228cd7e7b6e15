//! Bugs of our own programs that no rule sees: a panic, or a reconcile that met something impossible. The work is tried
//! again, so the scenario may pass all the same.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// How the names of our programs' logs begin.
const PROGRAMS: [&str; 2] = ["manager-", "local-infrastructure"];
/// What a line has that tells of a bug: a panic, or the label of `Error::Internal`, as JSON and as text.
const BUGS: [&str; 3] = ["panicked at", r#""result":"internal""#, r#"result="internal""#];

/// The logs of our own programs, from a moment on.
pub(super) struct OwnLogs {
    directory: PathBuf,
    /// How long each log was at that moment.
    read: BTreeMap<PathBuf, u64>,
}

impl OwnLogs {
    /// The logs in a directory, from now on.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn from_now_on(directory: &Path) -> Result<Self> {
        let read = logs(directory)?.into_iter().map(|log| Ok((log.clone(), log.metadata()?.len())));
        let read = read.collect::<Result<_>>().context("the logs of our programs")?;
        Ok(Self { directory: directory.to_owned(), read })
    }

    /// The lines since then that tell of a bug, each with the log's name.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub(super) fn bugs(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for log in logs(&self.directory)? {
            let (mut file, mut text) = (File::open(&log)?, Vec::new());
            file.seek(SeekFrom::Start(self.read.get(&log).copied().unwrap_or_default()))?;
            file.read_to_end(&mut text)?;
            let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = String::from_utf8_lossy(&text);
            let lines = text.lines().filter(|line| BUGS.iter().any(|bug| line.contains(bug)));
            found.extend(lines.map(|line| format!("{name}: {line}")));
        }
        Ok(found)
    }
}

fn logs(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut logs = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".log") && PROGRAMS.iter().any(|program| name.starts_with(program)) {
            logs.push(entry.path());
        }
    }
    logs.sort();
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;

    #[test]
    fn only_new_lines_of_our_own_programs_are_bugs() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, line: &str| {
            let log = OpenOptions::new().create(true).append(true).open(directory.path().join(name));
            writeln!(log.unwrap(), "{line}").unwrap();
        };
        let panic = "thread 'tokio-rt-worker' panicked at src/lib.rs:1:1:";
        write("manager-0.log", panic);
        let logs = OwnLogs::from_now_on(directory.path()).unwrap();
        write("etcd.log", panic);
        write("manager-0.log", r#"{"level":"WARN","fields":{"error":"x","result":"not_ready"}}"#);
        assert_eq!(logs.bugs().unwrap(), Vec::<String>::new());
        write("manager-0.log", r#"{"level":"WARN","fields":{"error":"x","result":"internal"}}"#);
        write("manager-late.log", panic);
        let found = logs.bugs().unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("manager-0.log: {") && found[1].ends_with("src/lib.rs:1:1:"), "{found:?}");
    }
}
