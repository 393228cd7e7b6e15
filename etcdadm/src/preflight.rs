//! What can be checked of a machine before others depend on it: a member that is added and cannot start costs the cluster
//! its tolerance.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::endpoint::{CLIENT_PORT, PEER_PORT};
use crate::files;

/// etcd reserves two segments of 64 MiB for its write-ahead log at once, and needs room to grow.
const SPACE: u64 = 192 * 1024 * 1024;

/// Checks that etcd's ports are free and that its data directory has room.
///
/// # Errors
/// Says which port is taken, or what is wrong with the directory.
pub fn check(address: IpAddr, data_dir: &Path) -> Result<()> {
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

    #[test]
    fn a_port_that_is_taken_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let address: IpAddr = "127.66.0.1".parse().unwrap();
        let data = directory.path().join("etcd");
        check(address, &data).unwrap();
        let _other = TcpListener::bind((address, PEER_PORT)).unwrap();
        let message = format!("{:#}", check(address, &data).unwrap_err());
        assert!(message.contains("port 2380 of 127.66.0.1"), "{message}");
    }

    /// The kernel's own file system never has any.
    #[test]
    fn a_disk_without_space_is_told_with_what_etcd_needs() {
        let message = check_space(Path::new("/proc")).unwrap_err().to_string();
        assert_eq!(message, "/proc has 0 MiB left, and etcd needs 192 MiB to begin with");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let message =
            format!("{:#}", check("127.66.0.2".parse().unwrap(), &directory.path().join("file/etcd")).unwrap_err());
        assert!(message.contains("cannot make"), "{message}");
    }
}
