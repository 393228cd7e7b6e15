//! Which etcd is installed: what the program itself says, and what was recorded.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checksum::Sha256;
use crate::files;

/// How often a program is tried while another process has it open. That process runs its own program within moments.
const BUSY_TRIES: usize = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// What was installed last, in `install.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstallRecord {
    pub(crate) version: String,
    pub(crate) archive_sha256: Sha256,
    pub(crate) programs: BTreeMap<String, Sha256>,
}

/// The version that an etcd program reports; `None` if the program does not run.
pub(crate) fn version_of(etcd: &Path) -> Option<String> {
    let output = asked_for_version(etcd)?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix("etcd Version: "))?.trim().to_owned())
}

/// Linux does not run a file that a process has open for writing. A process that this one has just forked has all of
/// this one's files open until it runs its own program.
#[expect(clippy::disallowed_methods, reason = "the program itself is waited for too, for longer")]
fn asked_for_version(etcd: &Path) -> Option<Output> {
    for _ in 0..BUSY_TRIES {
        match Command::new(etcd).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(BUSY_PAUSE);
            }
            answer => return answer.ok(),
        }
    }
    None
}

/// The version that was installed last, according to install.json.
pub(crate) fn recorded_version(record: &Path) -> Option<String> {
    let record: InstallRecord = serde_json::from_slice(&files::read(record).ok()??).ok()?;
    Some(record.version)
}
