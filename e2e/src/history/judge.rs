//! etcd's own judge of a history: whether what clients saw is what one single etcd could have shown them.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs};

/// How long the judge may take, in seconds. It usually takes less than one.
const TIME: u64 = 120;
/// The file name of the picture of a violation.
pub(super) const PICTURE: &str = "violation.html";
/// The judge's exit codes: a history in order, a violation, and a history that it could not judge.
const FINE: i32 = 0;
const VIOLATION: i32 = 1;
const UNDECIDED: i32 = 2;

/// The data of a member. Its log shows which requests with an unknown outcome took effect.
#[derive(Clone, Debug)]
pub struct MemberData {
    /// The member's name.
    pub name: String,
    /// Its data directory, as a path on this computer.
    pub data: PathBuf,
}

/// The judge's verdict.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// `fine`, `violation` or `undecided`.
    pub verdict: String,
    /// Why, if it is not `fine`.
    pub reason: String,
    /// How many requests were judged.
    pub operations: usize,
    /// How many changes the watches reported.
    pub watch_events: usize,
    /// How many requests the members' logs contain. Without any, watches were not judged.
    pub persisted_requests: usize,
    /// The picture of a violation.
    pub picture: Option<PathBuf>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, reason, operations, watch_events, persisted_requests, seconds, .. } = self;
        write!(f, "{verdict}: {operations} requests, {watch_events} changes watched, ")?;
        match persisted_requests {
            0 => write!(f, "not compared with logs")?,
            persisted => write!(f, "{persisted} requests in the logs")?,
        }
        write!(f, "; judged in {seconds:.1} s")?;
        if reason.is_empty() { Ok(()) } else { write!(f, "; {reason}") }
    }
}

/// Judges the files in `directory`, which [`super::report`] has written, with the logs of `members` if there are any.
///
/// # Errors
/// When there is a violation, or no verdict; the error has the reason and the place of the picture.
pub(super) fn judge(program: &Path, directory: &Path, members: &[MemberData]) -> Result<Verdict> {
    forget_earlier(directory)?;
    for member in members {
        copy_log(member, directory).with_context(|| format!("copy the log of {}", member.name))?;
    }
    let log = directory.join("judge.log");
    let output = Command::new(program)
        .arg(format!("-timeout={TIME}s"))
        .arg(directory)
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).with_context(|| format!("create {}", log.display()))?)
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    let code = output.status.code();
    let Some(FINE | VIOLATION | UNDECIDED) = code else {
        bail!("the judge ended with {}; see {}", output.status, log.display());
    };
    let verdict: Verdict = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the judge's verdict, of {}", directory.display()))?;
    let picture = verdict.picture.as_ref().map(|picture| format!("; picture: {}", picture.display()));
    ensure!(
        code == Some(FINE),
        "the judge says {}: {} (see {}{})",
        verdict.verdict,
        verdict.reason,
        log.display(),
        picture.unwrap_or_default()
    );
    Ok(verdict)
}

/// Removes the logs that an earlier judgement copied, and its picture.
fn forget_earlier(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("server-") {
            fs::remove_dir_all(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        } else if name == PICTURE {
            fs::remove_file(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Copies a member's log to where the judge expects it. Reading may repair the end of a log, and the member still runs.
fn copy_log(member: &MemberData, directory: &Path) -> Result<()> {
    let to = directory.join(format!("server-{}", member.name)).join("member");
    fs::create_dir_all(&to).with_context(|| format!("create {}", to.display()))?;
    // etcd allocates its log in advance: holes stay holes.
    crate::process::output(
        Command::new("cp").args(["--archive", "--sparse=always"]).arg(member.data.join("member/wal")).arg(&to),
    )?;
    Ok(())
}
