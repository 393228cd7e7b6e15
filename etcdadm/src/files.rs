//! Writes files so that each holds either its old or its new content, even after a power failure.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

/// A file under its temporary name. [`PendingFile::commit`] puts it in its place. Without that, it disappears.
#[derive(Debug)]
pub struct PendingFile {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl PendingFile {
    /// Starts to write `target` with permission bits `mode`, and makes its directory if it is missing.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let directory = parent(target);
        create_directory(directory, 0o755)?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // All attempts use the same name, so an attempt overwrites what an interrupted run left, and nothing piles up.
        let temporary = directory.join(format!(".{name}.etcdadm-partial"));
        remove_if_there(&temporary)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        // The umask must not decide who reads a key or runs a program.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        Ok(Self { file, temporary, target: target.to_owned(), committed: false })
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When the disk fails. The old file is then still in place.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.target)?;
        self.committed = true;
        File::open(parent(&self.target))?.sync_all()
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.committed {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Makes sure that a file that another program has written survives a power failure. A read-only file system, which
/// cannot lose the file, may have no such operation.
///
/// # Errors
/// When the file cannot be opened, or the disk fails.
pub fn sync(path: &Path) -> Result<()> {
    for path in [path, parent(path)] {
        let synced = File::open(path).and_then(|file| file.sync_all());
        if let Err(error) = synced
            && error.kind() != io::ErrorKind::InvalidInput
        {
            return Err(error).with_context(|| format!("cannot sync {}", path.display()));
        }
    }
    Ok(())
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes `path` and its missing parents, each with permission bits `mode`. Existing directories stay as they are.
///
/// # Errors
/// When one cannot be made.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

/// Makes `path` hold `contents` with permission bits `mode`. Returns whether anything had to change.
///
/// # Errors
/// When the file cannot be written; the message names it.
pub fn write(path: &Path, contents: &[u8], mode: u32) -> Result<bool> {
    if read(path)?.is_some_and(|old| old == contents) && permissions(path)? == mode {
        return Ok(false);
    }
    let place = || format!("cannot write {}", path.display());
    let mut pending = PendingFile::create(path, mode).with_context(place)?;
    pending.write_all(contents).with_context(place)?;
    pending.commit().with_context(place)?;
    Ok(true)
}

/// Renames a file if it exists. The change is on disk when this returns.
///
/// # Errors
/// When it exists and cannot be renamed; the message names it.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    let place = || format!("cannot rename {}", from.display());
    if from.exists() {
        fs::rename(from, to).with_context(place)?;
        File::open(parent(to)).and_then(|directory| directory.sync_all()).with_context(place)?;
    }
    Ok(())
}

/// Removes `path` if it exists. The change is on disk when this returns.
///
/// # Errors
/// When it exists and cannot be removed; the message names it.
pub fn remove(path: &Path) -> Result<()> {
    let place = || format!("cannot remove {}", path.display());
    if path.exists() {
        remove_if_there(path).with_context(place)?;
        File::open(parent(path)).and_then(|directory| directory.sync_all()).with_context(place)?;
    }
    Ok(())
}

fn permissions(path: &Path) -> Result<u32> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(metadata.permissions().mode() & 0o7777)
}

/// Reads `path`; `None` if there is no such file.
///
/// # Errors
/// When it exists and cannot be read; the message names it.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A lock that this program holds while it works on the machine. However the program ends, the kernel releases the
/// lock.
#[derive(Debug)]
pub struct Lock(File);

/// Closing the file would not be enough: a forked process also has it open until that process runs its own program.
impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the file is closed anyway.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Lock {
    /// Takes the lock at `path`.
    ///
    /// # Errors
    /// When another process holds it.
    pub fn take(path: &Path) -> Result<Self> {
        let place = || format!("cannot lock {}", path.display());
        create_directory(parent(path), 0o755).with_context(place)?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.with_context(place)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                "another etcdadm is at work on this machine (it holds {}); wait until it ends, or stop it",
                path.display()
            ),
            Err(errno) => Err(errno).with_context(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_only_what_changed_and_sets_permissions() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/secret");
        assert!(write(&path, b"one", 0o600).unwrap());
        assert!(!write(&path, b"one", 0o600).unwrap());
        assert!(write(&path, b"two", 0o600).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(write(&path, b"two", 0o600).unwrap(), "wrong permissions are put right");
        assert_eq!(permissions(&path).unwrap(), 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing temporary stays");
    }

    #[test]
    fn what_is_not_committed_leaves_the_old_file() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        write(&path, b"old", 0o644).unwrap();
        PendingFile::create(&path, 0o644).unwrap().write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_second_lock_is_refused_until_the_first_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state/lock");
        let first = Lock::take(&path).unwrap();
        let message = Lock::take(&path).unwrap_err().to_string();
        assert!(message.contains("another etcdadm"), "{message}");
        // Like a forked process that does not run its own program yet.
        let inherited = first.0.try_clone().unwrap();
        drop(first);
        Lock::take(&path).unwrap();
        drop(inherited);
    }
}
