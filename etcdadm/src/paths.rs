//! The path of every file that this program reads or writes.

use std::path::{Path, PathBuf};

/// Paths on the machine. All of them are below a root, which is `/` unless a test runs members side by side.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
    install_dir: PathBuf,
    data_dir: PathBuf,
    certs_dir: PathBuf,
}

impl Paths {
    /// The paths below `root`. The directories of programs, data and certificates are given without the root.
    pub(crate) fn new(root: &Path, install_dir: &Path, data_dir: &Path, certs_dir: &Path) -> Self {
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        Self {
            root: root.to_owned(),
            install_dir: below(install_dir),
            data_dir: below(data_dir),
            certs_dir: below(certs_dir),
        }
    }

    /// A program in the install directory.
    pub fn program(&self, name: &str) -> PathBuf {
        self.install_dir.join(name)
    }

    /// The wrapper that runs etcdctl with its environment.
    pub fn etcdctl_wrapper(&self) -> PathBuf {
        self.program("etcdctl.sh")
    }

    /// etcd's data.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Where etcd keeps its write-ahead log: a file in it means that this machine was a member once.
    pub fn wal_dir(&self) -> PathBuf {
        self.data_dir.join("member/wal")
    }

    /// What etcd's unit runs: it checks the data and becomes etcd.
    pub fn guard(&self) -> PathBuf {
        self.program("etcd-guard.sh")
    }

    /// The epoch beside the write-ahead log; see [`crate::guard`].
    pub fn inner_epoch(&self) -> PathBuf {
        self.data_dir.join("member/etcdadm-epoch")
    }

    /// The epoch outside the data directory. It is beside etcd.env, so either both survive or neither does.
    pub fn outer_epoch(&self) -> PathBuf {
        self.root.join("etc/etcd/epoch")
    }

    /// Why the last start of etcd was refused; absent after a start that was not.
    pub fn refusal(&self) -> PathBuf {
        self.root.join("var/lib/etcdadm/refusal")
    }

    /// A certificate.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.certs_dir.join(format!("{name}.crt"))
    }

    /// A certificate's key.
    pub fn key(&self, name: &str) -> PathBuf {
        self.certs_dir.join(format!("{name}.key"))
    }

    /// etcd's settings.
    pub fn etcd_env(&self) -> PathBuf {
        self.root.join("etc/etcd/etcd.env")
    }

    /// etcdctl's settings.
    pub fn etcdctl_env(&self) -> PathBuf {
        self.root.join("etc/etcd/etcdctl.env")
    }

    /// The systemd unit.
    pub fn unit(&self) -> PathBuf {
        self.root.join("etc/systemd/system").join(crate::init_system::UNIT)
    }

    /// Where release archives of a version are kept.
    pub fn release_cache(&self, version: &str) -> PathBuf {
        self.root.join("var/cache/etcdadm/etcd").join(format!("v{version}"))
    }

    /// The record of which member of which cluster this machine is.
    pub fn member_record(&self) -> PathBuf {
        self.root.join("var/lib/etcdadm/member.json")
    }

    /// The record of the installed release.
    pub fn install_record(&self) -> PathBuf {
        self.root.join("var/lib/etcdadm/install.json")
    }

    /// The lock that this program holds while it works.
    pub fn lock(&self) -> PathBuf {
        self.root.join("var/lib/etcdadm/lock")
    }
}
