//! Files of the state directory.

use super::{Error, Result};
use rustix::fs::{Mode, OFlags, openat, renameat};
use serde::de::DeserializeOwned;
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

/// For `map_err`: adds the path of the file to an error.
pub(crate) fn on(path: &Path) -> impl Fn(io::Error) -> Error {
    let path: PathBuf = path.to_owned();
    move |source| Error::File { path: path.clone(), source }
}

/// The answer about a file or directory; nothing if it does not exist.
pub(crate) fn if_there<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Reads a JSON file; nothing if it does not exist.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let Some(json) = if_there(fs::read(path)).map_err(on(path))? else { return Ok(None) };
    serde_json::from_slice(&json).map(Some).map_err(io::Error::from).map_err(on(path))
}

/// Writes the whole file or nothing: readers never see half of it, and a process that dies here never leaves half of
/// it.
pub(crate) fn write_atomic(path: &Path, content: &[u8]) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(on(directory))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    File::open(directory).and_then(|directory| write_in(&directory, &name, content)).map_err(on(path))
}

/// The same as [`write_atomic`], in a directory that has been opened and may have no path here any more.
pub(crate) fn write_in(directory: &File, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = format!(".{name}.{}", std::process::id());
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, &temporary, flags, Mode::from_raw_mode(0o644))?);
    file.write_all(content)?;
    renameat(directory, &temporary, directory, name)?;
    Ok(())
}

/// The names in a directory, sorted; none if it does not exist.
pub(crate) fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in if_there(fs::read_dir(directory)).map_err(on(directory))?.into_iter().flatten() {
        names.push(entry.map_err(on(directory))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Removes a directory with its content; nothing happens if it does not exist.
pub(super) fn remove_tree(path: &Path) -> Result<()> {
    if_there(fs::remove_dir_all(path)).map(drop).map_err(on(path))
}
