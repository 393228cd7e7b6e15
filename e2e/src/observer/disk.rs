//! The disks of members that are silent: how far the log goes that they would start with.

use super::record::{Disk, Event};
use super::recorder::Recorder;
use super::wal;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a machine, `<namespace>/<name>`, has etcd's data, seen from here. `None`: there is no such machine.
pub type DataDirectory = dyn Fn(&str) -> Option<PathBuf> + Send + Sync;

/// All disks. Copies are the same.
#[derive(Clone)]
pub(super) struct Disks {
    directory: Arc<DataDirectory>,
    /// What each log looked like from outside when it was read.
    read: Arc<Mutex<BTreeMap<PathBuf, Vec<Outside>>>>,
}

/// A file as its directory shows it: name, number, size, last change.
type Outside = (PathBuf, u64, u64, (i64, i64));

impl Disks {
    pub(super) fn new(directory: Arc<DataDirectory>) -> Self {
        Self { directory, read: Arc::default() }
    }

    /// Writes down how far the log of a silent member goes, if that is another log than the last time. A disk that is
    /// not there, or cannot be read now, is passed over.
    pub(super) fn look(&self, recorder: &Recorder, etcd: &str, url: &str) {
        let Some(machine) = recorder.machine_at(etcd, url) else { return };
        let Some(data) = (self.directory)(&machine).filter(|data| data.exists()) else { return };
        let log = data.join("member").join("wal");
        let now = outside(&log);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.get(&log) == Some(&now) {
            return;
        }
        if let Ok(last) = wal::last_index(&log) {
            read.insert(log, now);
            recorder.note(Event::Disk(Disk { etcd: etcd.to_owned(), url: url.to_owned(), last }));
        }
    }
}

fn outside(directory: &Path) -> Vec<Outside> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |path: PathBuf, file: &Metadata| (path, file.ino(), file.len(), (file.mtime(), file.mtime_nsec()));
    let mut found: Vec<Outside> = entries.filter_map(|entry| Some(of(entry.path(), &entry.metadata().ok()?))).collect();
    found.sort();
    found
}
