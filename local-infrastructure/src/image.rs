//! The image that machines start from: a directory that is the layer between this computer's files and a machine's
//! disk.

use crate::machine::if_there;
use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The program `etcdadm`, which becomes `/usr/local/bin/etcdadm`.
    pub etcdadm: Option<PathBuf>,
    /// A directory of etcd releases, `v<version>/etcd-v<version>-linux-<arch>.tar.gz` with its `.sha256` beside it. It
    /// becomes `/var/cache/etcdadm/etcd`.
    pub etcd_releases: Option<PathBuf>,
    /// Where downloads are kept for the next image; see [`default_cache`].
    pub cache: PathBuf,
}

/// Why an image cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another program failed.
    #[error("{program}: {message}")]
    Program {
        /// The program.
        program: String,
        /// Its message.
        message: String,
    },
    /// cloud-init is not installed on this computer.
    #[error("cloud-init is missing: install the package `cloud-init`")]
    NoCloudInit,
}

type Result<T> = std::result::Result<T, Error>;

/// The project's cache: `$XDG_CACHE_HOME/cluster-api-provider-etcdadm`, or the same below `~/.cache` if the variable is
/// not set.
#[must_use]
pub fn default_cache() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache");
    let root = env::var_os("XDG_CACHE_HOME").filter(|set| !set.is_empty()).map_or_else(home, PathBuf::from);
    root.join("cluster-api-provider-etcdadm")
}

/// Makes the image in `destination`, which is emptied first. It must not be in `/usr`, `/etc` or `/var`, because it
/// becomes an overlay layer above them.
///
/// # Errors
/// If a part is missing or cannot be copied, or the package `systemctl` is not available.
pub fn assemble(destination: &Path, parts: &Parts) -> Result<()> {
    if !Path::new("/usr/bin/cloud-init").exists() {
        return Err(Error::NoCloudInit);
    }
    if_there(fs::remove_dir_all(destination)).map_err(on(destination))?;
    write(&destination.join("etc/cloud/cloud.cfg"), 0o644, include_str!("image/cloud.cfg"))?;
    let unit = "usr/lib/systemd/system/systemd-timesyncd.service";
    write(&destination.join(unit), 0o644, include_str!("image/systemd-timesyncd.service"))?;
    // cloud-init looks for this program to find out whether the service is installed.
    write(&destination.join("usr/lib/systemd/systemd-timesyncd"), 0o755, "#!/bin/sh\n")?;
    install_systemctl(destination, &systemctl(&parts.cache)?)?;
    if let Some(etcdadm) = &parts.etcdadm {
        let to = destination.join("usr/local/bin/etcdadm");
        link_or_copy(etcdadm, &to)?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(on(&to))?;
    }
    if let Some(releases) = &parts.etcd_releases {
        link_or_copy_tree(releases, &destination.join("var/cache/etcdadm/etcd"))?;
    }
    Ok(())
}

/// The path of Debian's `systemctl` script, which needs no daemon. It is downloaded unless it is in the cache. It is
/// never installed on this computer, where it would replace the real one.
///
/// # Errors
/// If the package cannot be downloaded or unpacked.
pub fn systemctl(cache: &Path) -> Result<PathBuf> {
    let directory = cache.join("systemctl");
    let script = directory.join("usr/bin/systemctl");
    if script.exists() {
        return Ok(script);
    }
    let temporary = cache.join(format!("systemctl.{}", std::process::id()));
    fs::create_dir_all(&temporary).map_err(on(&temporary))?;
    let fetched = fetch_systemctl(&temporary);
    // Another process may have been faster. Its result is just as good.
    if fetched.is_ok() && fs::rename(temporary.join("unpacked"), &directory).is_err() && !script.exists() {
        return Err(Error::File { path: directory, source: io::Error::other("cannot be created") });
    }
    fs::remove_dir_all(&temporary).map_err(on(&temporary))?;
    fetched.map(|()| script)
}

fn fetch_systemctl(temporary: &Path) -> Result<()> {
    run(Command::new("apt-get").args(["download", "-q", "systemctl"]).current_dir(temporary))?;
    let entries = fs::read_dir(temporary).map_err(on(temporary))?;
    let package = entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some());
    let package = package.ok_or_else(|| Error::Program {
        program: "apt-get download systemctl".to_owned(),
        message: "left no package".to_owned(),
    })?;
    run(Command::new("dpkg").arg("-x").arg(package).arg(temporary.join("unpacked")))
}

/// The script sleeps for whole and half seconds, even if what it waits for is already there, so every service would
/// take two seconds to start, and one second to stop. It also forgets the exit status of a process that it reaped
/// itself, and this status decides whether the service is restarted. Each text is replaced wherever it occurs.
const CHANGES: [(&str, &str); 7] = [
    ("\nMinimumYield = 0.5\n", "\nMinimumYield = 0.02\n"),
    (
        "if not attempt: # first one\n                time.sleep(1)",
        "if not attempt: # first one\n                time.sleep(0)",
    ),
    (
        "if not result: # timeout\n                time.sleep(1)",
        "if not result: # timeout\n                time.sleep(0)",
    ),
    // A service that is told to stop, until its processes have ended. A deadline limits it.
    (
        "time.sleep(1) # until TimeoutStopSec\n        if dead or not doSendSIGKILL",
        "time.sleep(MinimumYield)\n        if dead or not doSendSIGKILL",
    ),
    // Another call that has the lock of the service. A number of attempts limits it, so there are more of them.
    (
        "xrange(int(MaxLockWait or DefaultMaximumTimeout))",
        "xrange(int((MaxLockWait or DefaultMaximumTimeout) / MinimumYield))",
    ),
    ("time.sleep(1) # until MaxLockWait", "time.sleep(MinimumYield)"),
    (
        "run = subprocess_testpid(forkpid)\n",
        "run = subprocess_testpid(forkpid)\n                self.write_status_from(conf, ExecMainStatus=run.returncode)\n",
    ),
];

fn install_systemctl(destination: &Path, script: &Path) -> Result<()> {
    let mut text = fs::read_to_string(script).map_err(on(script))?;
    for (before, after) in CHANGES {
        if !text.contains(before) {
            eprintln!(
                "{}: this version does not contain {before:?}, so services may be slow, or stay down",
                script.display()
            );
        }
        text = text.replace(before, after);
    }
    let source = destination.join("usr/lib/local-infrastructure/systemctl.py");
    write(&source, 0o644, &text)?;
    // Compiles the script once: otherwise this takes most of the time of each call.
    let compile = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[1] + 'c', doraise=True)";
    run(Command::new("/usr/bin/python3").args(["-c", compile]).arg(&source))?;
    write(&destination.join("usr/bin/systemctl"), 0o755, include_str!("image/systemctl.sh"))
}

fn run(command: &mut Command) -> Result<()> {
    let program = format!("{command:?}").replace('"', "");
    let failed = |message: String| Error::Program { program: program.clone(), message };
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn write(path: &Path, mode: u32, content: &str) -> Result<()> {
    create_parent(path)?;
    fs::write(path, content).map_err(on(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(on(path))
}

fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    create_parent(to)?;
    // A link between file systems fails, and a copy does as well.
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).map_err(on(from))?;
    }
    Ok(())
}

fn link_or_copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(on(to))?;
    for entry in fs::read_dir(from).map_err(on(from))? {
        let entry = entry.map_err(on(from))?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            link_or_copy_tree(&entry.path(), &target)?;
        } else {
            link_or_copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn create_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(on(parent))
}

fn on(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { path: path.clone(), source }
}
