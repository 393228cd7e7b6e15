//! The disks of silent members: how far the log goes with which the member would start.

use super::record::{Disk, Event};
use super::recorder::Recorder;
use super::wal;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The path on this computer at which a machine, `<namespace>/<name>`, has etcd's data. `None` if there is no such
/// machine, or its data cannot be seen now.
pub type DataDirectory = dyn Fn(&str) -> Option<PathBuf> + Send + Sync;

/// All disks. Clones share their state.
#[derive(Clone)]
pub(super) struct Disks {
    directory: Arc<DataDirectory>,
    /// The files of each silent member's log, as their directory showed them when the log was read.
    read: Arc<Mutex<BTreeMap<Place, Vec<Outside>>>>,
}

/// A member: its EtcdCluster and its client URL.
type Place = (String, String);

/// A file as its directory shows it: path, inode number, size, last change.
type Outside = (PathBuf, u64, u64, (i64, i64));

impl Disks {
    pub(super) fn new(directory: Arc<DataDirectory>) -> Self {
        Self { directory, read: Arc::default() }
    }

    /// Records how far the log of a silent member goes, if its files have changed since the last time. A disk that does
    /// not exist, or cannot be read now, is skipped.
    pub(super) fn look(&self, recorder: &Recorder, etcd: &str, url: &str) {
        let Some(machine) = recorder.machine_at(etcd, url) else { return };
        let Some(data) = (self.directory)(&machine).filter(|data| data.exists()) else { return };
        let log = data.join("member").join("wal");
        let now = outside(&log);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let member = (etcd.to_owned(), url.to_owned());
        if read.get(&member) == Some(&now) {
            return;
        }
        if let Ok(last) = wal::last_index(&log) {
            read.insert(member, now);
            recorder.note(Event::Disk(Disk { etcd: etcd.to_owned(), url: url.to_owned(), last }));
        }
    }

    /// Call it when a member answers. When the member falls silent again, its disk is recorded again, even if the disk
    /// looks as it did before the member started.
    pub(super) fn forget(&self, etcd: &str, url: &str) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.remove(&(etcd.to_owned(), url.to_owned()));
    }
}

fn outside(directory: &Path) -> Vec<Outside> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |path: PathBuf, file: &Metadata| (path, file.ino(), file.len(), (file.mtime(), file.mtime_nsec()));
    let mut found: Vec<Outside> = entries.filter_map(|entry| Some(of(entry.path(), &entry.metadata().ok()?))).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::super::record::{Answer, Etcd, Line, Machine, Member};
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_disk_that_is_as_empty_as_before_the_member_started_is_told_again() {
        let (directory, url) = (tempfile::tempdir().unwrap(), "https://10.0.0.1:2379");
        let recorder = Recorder::create(&directory.path().join("record.jsonl")).unwrap();
        recorder.note(Event::Etcd(Etcd { name: "a/etcd".to_owned(), ..Etcd::default() }));
        recorder.note(Event::Machine(Machine {
            name: "a/b".to_owned(),
            etcd: "a/etcd".to_owned(),
            addresses: vec!["10.0.0.1".to_owned()],
            ..Machine::default()
        }));
        let data = directory.path().to_owned();
        let disks = Disks::new(Arc::new(move |_: &str| Some(data.clone())));
        let told = || {
            let lines: Vec<Line> = recorder.lines().unwrap();
            lines.iter().filter(|line| matches!(line.event, Event::Disk(_))).count()
        };
        disks.look(&recorder, "a/etcd", url);
        disks.look(&recorder, "a/etcd", url);
        assert_eq!(told(), 1);
        disks.forget("a/etcd", url);
        let answer = Answer::Status(Box::default());
        let member = Member { etcd: "a/etcd".to_owned(), url: url.to_owned(), answer, gap: None };
        recorder.note_answer(member, Duration::ZERO);
        disks.look(&recorder, "a/etcd", url);
        assert_eq!(told(), 2);
    }
}
