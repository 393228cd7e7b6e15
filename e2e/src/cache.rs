//! A cache for things that take long to make. It is outside the checkout and stays between runs.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The cache of this project: `${XDG_CACHE_HOME:-~/.cache}/cluster-api-provider-etcdadm`.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` says where that is.
pub fn root() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    Ok(base.join("cluster-api-provider-etcdadm"))
}

/// A hash in hexadecimal.
pub(crate) fn hexadecimal(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes sure that the directory `final_path` exists. If it does not, `fill` makes it in a temporary directory beside
/// it.
///
/// The directory appears whole or not at all, so an interrupted run leaves nothing that looks finished. Two runs at
/// once take turns, and the second finds the first one's result. A run that has to wait calls `waiting` once.
///
/// # Errors
/// When the cache cannot be written, or `fill` fails.
pub fn directory(final_path: &Path, waiting: impl FnOnce(), fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if final_path.is_dir() {
        return Ok(());
    }
    let parent = final_path.parent().context("a cached directory has a parent")?;
    let name = final_path.file_name().and_then(|name| name.to_str()).context("a cached directory has a name")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    let _lock = lock(&parent.join(format!("{name}.lock")), waiting)?;
    if final_path.is_dir() {
        return Ok(());
    }
    // An interrupted run has left this: a running one would hold the lock.
    let temporary = parent.join(format!("{name}.partial"));
    if temporary.exists() {
        fs::remove_dir_all(&temporary).with_context(|| format!("remove {}", temporary.display()))?;
    }
    fs::create_dir(&temporary).with_context(|| format!("create {}", temporary.display()))?;
    fill(&temporary)?;
    fs::rename(&temporary, final_path).with_context(|| format!("rename to {}", final_path.display()))
}

/// Locks `path` until the returned file is dropped, or the process ends in any way.
fn lock(path: &Path, waiting: impl FnOnce()) -> Result<File> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => waiting(),
        Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
    }
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_failed_fill_leaves_nothing_and_the_next_one_starts_clean() {
        let home = tempfile::tempdir().unwrap();
        let wanted = home.path().join("thing");
        let failed = directory(
            &wanted,
            || (),
            |dir| {
                fs::write(dir.join("half"), "")?;
                anyhow::bail!("interrupted")
            },
        );
        assert!(failed.is_err());
        assert!(!wanted.exists());
        directory(&wanted, || (), |dir| Ok(fs::write(dir.join("whole"), "")?)).unwrap();
        assert!(wanted.join("whole").exists());
        assert!(!wanted.join("half").exists());
    }

    #[test]
    fn two_at_once_fill_once() {
        let home = tempfile::tempdir().unwrap();
        let wanted = home.path().join("thing");
        let fills = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    directory(
                        &wanted,
                        || (),
                        |dir| {
                            fills.fetch_add(1, Ordering::SeqCst);
                            Ok(fs::write(dir.join("whole"), "")?)
                        },
                    )
                    .unwrap();
                });
            }
        });
        assert_eq!(fills.load(Ordering::SeqCst), 1);
    }
}
