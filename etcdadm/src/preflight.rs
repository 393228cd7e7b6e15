//! Checks on a machine before others depend on it: a member that is added and cannot start reduces the cluster's fault
//! tolerance.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::endpoint::{CLIENT_PORT, PEER_PORT};
use crate::files;
use crate::paths::Paths;
use crate::settings::Settings;

/// The flag whose addresses people choose.
const METRICS: &str = "listen-metrics-urls";

/// etcd reserves two segments of 64 MiB for its write-ahead log when it starts, and needs room to grow.
const SPACE: u64 = 192 * 1024 * 1024;

/// Checks that etcd's ports are free, that its data directory has space, and that the installed etcd accepts its flags.
///
/// # Errors
/// Says which port is taken, what is wrong with the directory, or which flag etcd refuses.
pub fn check(paths: &Paths, settings: &Settings) -> Result<()> {
    check_machine(settings.address, paths.data_dir())?;
    check_metrics(settings)?;
    check_flags(&paths.program("etcd"), &settings.etcd_flags)
}

fn check_machine(address: IpAddr, data_dir: &Path) -> Result<()> {
    let mut wanted = vec![(address, CLIENT_PORT), (address, PEER_PORT)];
    if !address.is_loopback() {
        wanted.push((Ipv4Addr::LOCALHOST.into(), CLIENT_PORT));
    }
    for (ip, port) in wanted {
        TcpListener::bind((ip, port)).map(drop).with_context(|| {
            format!("etcd needs port {port} of {ip}, which is not free; stop what uses it, such as another etcd")
        })?;
    }
    files::create_directory(data_dir, 0o700).with_context(|| format!("cannot make {}", data_dir.display()))?;
    check_space(data_dir)
}

fn check_metrics(settings: &Settings) -> Result<()> {
    let urls = settings.etcd_flags.iter().filter(|(flag, _)| flag == METRICS).flat_map(|(_, urls)| urls.split(','));
    for url in urls {
        let address = url.rsplit_once("//").map_or(url, |(_, address)| address);
        TcpListener::bind(address)
            .map(drop)
            .with_context(|| format!("{METRICS}: etcd cannot listen on {url}; give a free port of this machine"))?;
    }
    Ok(())
}

/// Passes the flags on etcd's command line, together with `--version`. etcd parses its flags before it prints its
/// version, and exits with 2 if it rejects one. Later the flags are environment variables, of which etcd ignores those
/// that it does not know.
fn check_flags(program: &Path, flags: &[(String, String)]) -> Result<()> {
    if flags.is_empty() {
        return Ok(());
    }
    let flags = flags.iter().map(|(name, value)| format!("--{name}={value}"));
    let mut etcd = Command::new(program);
    let output = etcd.args(flags).arg("--version").stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or_default();
    ensure!(output.status.success(), "etcd does not take its flags: {said}");
    Ok(())
}

fn check_space(data_dir: &Path) -> Result<()> {
    let disk = rustix::fs::statvfs(data_dir).with_context(|| format!("cannot look at {}", data_dir.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    ensure!(
        free >= SPACE,
        "{} has {} MiB left, and etcd needs {} MiB to begin with",
        data_dir.display(),
        free >> 20,
        SPACE >> 20
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let address: IpAddr = "127.66.0.1".parse().unwrap();
        let data = directory.path().join("etcd");
        check_machine(address, &data).unwrap();
        // A process that another test has just forked has the sockets of the check until it runs its program.
        let _other = loop {
            match TcpListener::bind((address, PEER_PORT)) {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let message = format!("{:#}", check_machine(address, &data).unwrap_err());
        assert!(message.contains("port 2380 of 127.66.0.1"), "{message}");
    }

    /// The kernel's own file system never has free space.
    #[test]
    fn a_disk_without_space_is_told_with_what_etcd_needs() {
        let message = check_space(Path::new("/proc")).unwrap_err().to_string();
        assert_eq!(message, "/proc has 0 MiB left, and etcd needs 192 MiB to begin with");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let message = format!(
            "{:#}",
            check_machine("127.66.0.2".parse().unwrap(), &directory.path().join("file/etcd")).unwrap_err()
        );
        assert!(message.contains("cannot make"), "{message}");
    }

    #[test]
    fn an_address_for_metrics_that_is_not_this_machines_is_named() {
        let with = |urls: &str| {
            let etcd_flags = vec![("max-wals".to_owned(), "9".to_owned()), (METRICS.to_owned(), urls.to_owned())];
            check_metrics(&Settings { etcd_flags, ..crate::settings::tests::example() })
        };
        with("http://127.66.0.3:2381,https://localhost:23810").unwrap();
        let message = format!("{:#}", with("http://127.66.0.3:2381,http://192.0.2.1:2381").unwrap_err());
        assert!(message.contains("listen-metrics-urls: etcd cannot listen on http://192.0.2.1:2381"), "{message}");
        let _other = TcpListener::bind("127.66.0.4:2381").unwrap();
        with("http://127.66.0.4:2381").unwrap_err();
    }

    #[test]
    fn a_flag_that_etcd_does_not_take_is_told_in_its_words() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("etcd");
        let text =
            "#!/bin/sh\n[ \"$*\" = '--max-wals=9 --version' ] && exit\necho \"no $1\" >&2\necho Usage: >&2\nexit 2\n";
        crate::guard::tests::write_program(&program, text);
        let check = |value: &str| check_flags(&program, &[("max-wals".to_owned(), value.to_owned())]);
        check("9").unwrap();
        assert_eq!(check("many").unwrap_err().to_string(), "etcd does not take its flags: no --max-wals=many");
        check_flags(Path::new("/nowhere/etcd"), &[]).unwrap();
    }
}
