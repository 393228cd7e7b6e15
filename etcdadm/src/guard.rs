//! Keeps etcd from starting without its data, or with an older copy of it.
//!
//! etcd itself starts an empty member wherever it finds no write-ahead log and its settings allow it, under the IDs of
//! the member that was there. A script that the unit starts in place of etcd prevents that: it compares two epochs, one
//! beside the write-ahead log and one in `/etc/etcd`, and only then becomes etcd. Both get a new random value at every
//! start and stop, so an older copy of the data directory carries an older epoch.
//!
//! Invariants:
//! - Before etcd first runs, both epochs are on disk: a directory without the epoch is not the one etcd ran in.
//! - A new value is announced outside (`old new`), then written beside the log, then confirmed outside (`new`), each
//!   synced before the next. A kill or power failure in between leaves a pair that fits.
//! - Once a log has been seen, etcd's settings say `existing` with itself as the only member, with which etcd of every
//!   supported version does not start without a log. This holds even where the script is bypassed.
//!
//! What it cannot see: a copy taken since the last start, if the machine then lost power before it stopped etcd; and a
//! whole machine set back, `/etc` included.

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
    /// No write-ahead log, and none that is missed.
    Blank,
    /// The write-ahead log of the last run.
    Present,
    /// No write-ahead log, though by the epoch outside there was one, or the directory is not the one etcd was started in.
    Lost,
    /// No write-ahead log, and no epoch outside. Only etcd's settings say that there was a log: what a person leaves who
    /// has the machine join as a new member.
    Forgotten,
    /// A write-ahead log, but not the one of the last run.
    Outdated,
}

/// Looks at the epochs as the script does.
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
        // The script is at work: two looks at different times do not make a pair.
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

/// Forgets the data of an earlier member, for one that is new: the next start takes the directory as it is.
///
/// # Errors
/// When the file cannot be removed.
pub fn forget(paths: &Paths) -> Result<()> {
    files::remove(&paths.outer_epoch())
}

/// The script: `start` checks and becomes etcd, `stopped` marks the data that etcd left.
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
