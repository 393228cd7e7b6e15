//! How this machine was set up before: a run keeps what it is not told to change.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use etcd_values::{DEFAULT_ETCD_VERSION, EtcdVersion, environment_name, flag_exists, is_user_flag};

use crate::endpoint::{Endpoint, Host};
use crate::{files, guard, installed};

const DATA_DIR: &str = "/var/lib/etcd";
const CERTS_DIR: &str = "/etc/etcd/pki";
const INSTALL_DIR: &str = "/opt/bin/";
/// What the unit may run: the guard of this program, or etcd itself under the program that this one replaces.
const STARTED: [&str; 2] = ["etcd-guard.sh", "etcd"];

/// What an earlier run, or the program that this one replaces, left.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// More settings of etcd, by the names of its flags.
    pub(crate) etcd_flags: Vec<(String, String)>,
    /// TLS 1.2 cipher suites. If empty, Go's defaults apply.
    pub(crate) cipher_suites: Vec<String>,
    certs_dir: Option<PathBuf>,
    max_learners: Option<u32>,
    /// Whether etcd.env has the setting that the guard requires. If not, a missing learner limit may have been lost.
    has_settings: bool,
    data_dir: Option<PathBuf>,
    /// Only for a member: a machine that has a write-ahead log, or has had one.
    member: Option<Member>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    name: Option<String>,
    address: Option<IpAddr>,
    install_dir: Option<PathBuf>,
    version: Option<EtcdVersion>,
}

impl Kept {
    /// Reads etcd.env and the unit below `root`.
    ///
    /// # Errors
    /// When one exists and cannot be read.
    pub fn load(root: &Path) -> Result<Self> {
        let env = files::read(&root.join("etc/etcd/etcd.env"))?;
        let unit = unit(root)?;
        // A member whose settings are gone is still where its unit says.
        let in_unit = unit.lines().find_map(|line| line.strip_prefix("RequiresMountsFor="));
        if env.is_none() && in_unit.is_none() {
            return Ok(Self::default());
        }
        let env = env.unwrap_or_default();
        let env = String::from_utf8_lossy(&env);
        let settings = || env.lines().filter_map(|line| line.split_once('='));
        let value = |wanted: &str| settings().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let flags = settings().filter_map(|(name, value)| {
            let flag = name.strip_prefix("ETCD_")?.to_ascii_lowercase().replace('_', "-");
            (is_user_flag(&flag) && environment_name(&flag) == name).then(|| (flag, value.to_owned()))
        });
        let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        // The paths of a test lie below its root already.
        let data_dir = value("ETCD_DATA_DIR").or(in_unit).map(PathBuf::from);
        let outside = |path: &Path| path.strip_prefix(root).map_or(path.to_owned(), |path| Path::new("/").join(path));
        let data_dir = data_dir.map(|path| outside(&path));
        let ca = value("ETCD_TRUSTED_CA_FILE").map(Path::new);
        let cipher_suites = value("ETCD_CIPHER_SUITES").into_iter().flat_map(|suites| suites.split(','));
        let peer_url = value("ETCD_INITIAL_ADVERTISE_PEER_URLS").and_then(|url| url.parse::<Endpoint>().ok());
        let address = peer_url.and_then(|url| match url.host {
            Host::Ip(ip) => Some(ip),
            Host::Name(_) => None,
        });
        let member = || Member::load(root, &unit, value("ETCD_NAME").map(str::to_owned), address);
        // A machine whose data disk is not mounted stays a member: its settings do not change before the data is back.
        let has_log = below(data_dir.as_deref().unwrap_or(Path::new(DATA_DIR))).join("member/wal").is_dir();
        let epoch = files::read(&root.join("etc/etcd/epoch"))?.unwrap_or_default();
        let has_run = guard::has_run(&String::from_utf8_lossy(&epoch), &env);
        Ok(Self {
            etcd_flags: flags.collect(),
            cipher_suites: cipher_suites.map(str::to_owned).collect(),
            certs_dir: ca.and_then(Path::parent).map(outside),
            max_learners: value("ETCD_MAX_LEARNERS").and_then(|number| number.parse().ok()),
            has_settings: value("ETCD_DATA_DIR").is_some(),
            data_dir,
            member: (has_log || has_run).then(member),
        })
    }

    /// The requested name, or the name of the member.
    pub(crate) fn name(&self, asked: Option<String>) -> Option<String> {
        asked.or_else(|| self.member.as_ref()?.name.clone())
    }

    /// The requested address. If no address is requested, or only a family, a member keeps its own: the other members
    /// know it under that address, even if the routes of the machine have changed.
    pub(crate) fn address(&self, asked: Option<IpAddr>) -> Option<IpAddr> {
        let own = self.member.as_ref().and_then(|member| member.address);
        let keeps = |own: &IpAddr| asked.is_none_or(|asked| asked.is_unspecified() && asked.is_ipv4() == own.is_ipv4());
        own.filter(keeps).or(asked)
    }

    /// The requested data directory, or that of the last run.
    pub(crate) fn data_dir(&self, asked: Option<PathBuf>) -> Result<PathBuf> {
        let there = self.data_dir.clone().unwrap_or_else(|| DATA_DIR.into());
        match asked {
            Some(asked) if self.member.is_some() && !asked.components().eq(there.components()) => bail!(
                "--data-dir {}: this machine is a member with its data in {}; leave the flag out, or remove the member first",
                asked.display(),
                there.display()
            ),
            asked => Ok(asked.unwrap_or(there)),
        }
    }

    /// The requested directory of the certificates, or that of the last run.
    pub(crate) fn certs_dir(&self, asked: Option<PathBuf>) -> PathBuf {
        asked.or_else(|| self.certs_dir.clone()).unwrap_or_else(|| CERTS_DIR.into())
    }

    /// The requested install directory, or that of the member.
    pub(crate) fn install_dir(&self, asked: Option<PathBuf>) -> PathBuf {
        let there = self.member.as_ref().and_then(|member| member.install_dir.clone());
        asked.or(there).unwrap_or_else(|| INSTALL_DIR.into())
    }

    /// The settings of etcd. One that this version does not have is left out, as etcd itself ignores its line.
    pub(crate) fn flags(&self, version: &EtcdVersion) -> Vec<(String, String)> {
        let exists = |(name, _): &&(String, String)| match flag_exists(name, version) {
            Ok(()) => true,
            Err(why) => {
                tracing::warn!("the setting {name} of this machine is left out: {why}");
                false
            }
        };
        self.etcd_flags.iter().filter(exists).cloned().collect()
    }

    /// The requested version. A member keeps its own.
    pub(crate) fn version(&self, asked: Option<EtcdVersion>) -> Result<EtcdVersion> {
        match (&self.member, asked) {
            (Some(Member { version: Some(there), .. }), asked) => {
                let asked = asked.unwrap_or_else(|| there.clone());
                ensure!(
                    *there == asked,
                    "this machine is a member with etcd {there}; init and join do not change it to {asked}"
                );
                Ok(asked)
            }
            (_, Some(asked)) => Ok(asked),
            (Some(_), None) => {
                bail!("this machine is a member, but its etcd does not tell its version; give --version")
            }
            (None, None) => Ok(DEFAULT_ETCD_VERSION.parse()?),
        }
    }

    /// The requested learner limit. A member that has started keeps its own, because members with different limits drop
    /// each other's learners. If the settings of a member are gone, the limit must be given, because any guess may be
    /// wrong.
    pub(crate) fn max_learners(&self, asked: Option<u32>, version: &EtcdVersion) -> Result<Option<u32>> {
        let there = self.max_learners.unwrap_or(1);
        let is_known = self.has_settings || self.max_learners.is_some();
        if self.member.is_some() && version.has_max_learners() {
            match asked {
                Some(asked) => ensure!(
                    asked == there || !is_known,
                    "--max-learners {asked}: this member has started with {there}, and the limit is the same on every \
                     member and never changes"
                ),
                None => ensure!(
                    is_known,
                    "--max-learners is missing: this machine is a member, but its settings in etcd.env are gone. Stop \
                     etcd.service, and give all flags of its first run, and --max-learners 1 if that had none: the limit \
                     is the same on every member and never changes"
                ),
            }
        }
        Ok(asked.or(self.max_learners))
    }
}

impl Member {
    fn load(root: &Path, unit: &str, name: Option<String>, address: Option<IpAddr>) -> Self {
        let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")?.split(' ').next()).map(Path::new);
        let started = started.filter(|path| STARTED.iter().any(|name| path.ends_with(name)));
        let directory = started.and_then(Path::parent);
        let programs = directory.map_or_else(|| root.join(INSTALL_DIR.trim_start_matches('/')), Path::to_owned);
        let record = root.join("var/lib/etcdadm/install.json");
        let version = installed::version_of(&programs.join("etcd")).or_else(|| installed::recorded_version(&record));
        let install_dir =
            directory.map(|path| path.strip_prefix(root).map_or(path.into(), |path| Path::new("/").join(path)));
        Self { name, address, install_dir, version: version.and_then(|version| version.parse().ok()) }
    }
}

/// The unit of etcd; empty if there is none.
fn unit(root: &Path) -> Result<String> {
    let unit = files::read(&root.join("etc/systemd/system").join(crate::init_system::UNIT))?.unwrap_or_default();
    String::from_utf8(unit).context("the unit of etcd is not text")
}

#[cfg(test)]
mod tests;
