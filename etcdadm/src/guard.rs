//! Keeps etcd from starting without its data, or with an older copy of it.
//!
//! etcd itself starts an empty member, under the IDs of the earlier member, wherever it finds no write-ahead log and
//! its settings allow it. To prevent that, the unit starts a script in place of etcd. The script compares two epochs,
//! one beside the write-ahead log and one in `/etc/etcd`, and only then becomes etcd. Both epochs get a new random
//! value at every start and stop, so an older copy of the data directory has an older epoch.
//!
//! Invariants:
//! - Before etcd first runs, both epochs are on disk: a directory without the epoch is not the one in which etcd ran.
//! - A new value is announced outside (`old new`), then written beside the log, then confirmed outside (`new`). Each
//!   write is synced before the next. If a kill or a power failure interrupts this, the two epochs still match.
//! - As soon as a log has been seen, etcd's settings say `existing` and name this member as the only one. With these
//!   settings, no supported version of etcd starts without a log, even if the script is bypassed.
//!
//! The guard does not detect a copy that was taken since the last start, if the machine then lost power before it
//! stopped etcd; nor a whole machine that was reset to an earlier state, `/etc` included.

use anyhow::Result;

use crate::files;
use crate::paths::Paths;

/// Exit status of a start that is refused; systemd then does not try again. `EX_CONFIG` of sysexits.h.
pub const REFUSED: u8 = 78;

/// Second line of the epoch outside the data directory, once there has been a log.
const BEGUN: &str = "begun";

/// What the data directory holds, compared with what this machine remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// No write-ahead log, and none is missing.
    Blank,
    /// The write-ahead log of the last run, or one without an epoch outside to compare it with.
    Present,
    /// No write-ahead log, but an epoch outside. The member has had a log, or etcd was started in another directory.
    Lost,
    /// No write-ahead log and no epoch outside. Only etcd's settings say that there was a log. This is the state after
    /// a person has prepared the machine to join as a new member.
    Forgotten,
    /// A write-ahead log, but not the one of the last run.
    Outdated,
}

/// Compares the epochs as the script does.
///
/// # Errors
/// When a file cannot be read.
pub fn data(paths: &Paths) -> Result<Data> {
    let text = |path: std::path::PathBuf| {
        files::read(&path).map(|bytes| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    let mut outside = text(paths.outer_epoch())?;
    let inside = loop {
        let inside = text(paths.inner_epoch())?.unwrap_or_default();
        let now = text(paths.outer_epoch())?;
        if std::mem::replace(&mut outside, now.clone()) == now {
            break inside;
        }
        // The script is at work: values that were read at different times are not a pair.
    };
    let settings = text(paths.etcd_env())?.unwrap_or_default();
    let remembered = outside.as_deref().unwrap_or_default();
    let mut lines = remembered.lines();
    let fits =
        lines.next().is_some_and(|known| known.split(' ').any(|epoch| !epoch.is_empty() && epoch == inside.trim()));
    let has_run = has_run(remembered, &settings);
    let has_log = crate::wal::newest(paths)?.is_some();
    Ok(match (has_log, &outside) {
        (true, None) => Data::Present,
        (true, Some(_)) if fits => Data::Present,
        (true, Some(_)) => Data::Outdated,
        (false, Some(_)) if has_run || !fits => Data::Lost,
        (false, None) if has_run => Data::Forgotten,
        (false, _) => Data::Blank,
    })
}

/// Whether the member has had a write-ahead log, by the epoch outside the data directory, or by its settings.
pub(crate) fn has_run(outside: &str, settings: &str) -> bool {
    outside.lines().nth(1) == Some(BEGUN) || crate::existing::is_existing(settings)
}

/// Forgets the data of an earlier member, so that a new member can start: the next start accepts the directory as it
/// is.
///
/// # Errors
/// When the file cannot be removed.
pub fn forget(paths: &Paths) -> Result<()> {
    files::remove(&paths.outer_epoch())
}

/// The script. `start` checks the data and becomes etcd; `stopped` marks the data when etcd has stopped.
pub fn render(paths: &Paths) -> String {
    let path = |path: std::path::PathBuf| path.display().to_string();
    include_str!("guard/etcd-guard.sh")
        .replace("@ETCD@", &path(paths.program("etcd")))
        .replace("@DATA@", &path(paths.data_dir().to_owned()))
        .replace("@ENV@", &path(paths.etcd_env()))
        .replace("@OUTER@", &path(paths.outer_epoch()))
        .replace("@REFUSAL@", &path(paths.refusal()))
        .replace("@REFUSED@", &REFUSED.to_string())
}

#[cfg(test)]
pub(crate) mod tests;
