//! The checked command line: each value here is safe in a file, in a URL and in a certificate.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use etcd_values::{EtcdVersion, check_cipher_suites, check_flags};

use crate::address;
use crate::checksum::Sha256;
use crate::cli::MemberArgs;
use crate::endpoint::{CLIENT_PORT, Endpoint, PEER_PORT};
use crate::kept::Kept;
use crate::paths::Paths;
use crate::release_url::{DEFAULT_RELEASE_URL, without_credentials};
use crate::san::{San, parse_san};

/// The input of `init` and `join`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the member.
    pub name: String,
    /// The member's own address, in its URLs and certificates.
    pub address: IpAddr,
    /// Version of etcd.
    pub version: EtcdVersion,
    /// URL above the `v<version>` folders, without a slash at its end.
    pub release_url: String,
    /// SHA-256 that the release archive must have.
    pub release_sha256: Option<Sha256>,
    /// Most time that connecting to the release server may take.
    pub download_connect_timeout: Duration,
    /// Directory of the certificates.
    pub certs_dir: PathBuf,
    /// More names for the server certificate.
    pub extra_sans: Vec<San>,
    /// Directory of the programs.
    pub install_dir: PathBuf,
    /// Directory of etcd's data.
    pub data_dir: PathBuf,
    /// TLS 1.2 cipher suites; Go's choice if empty.
    pub cipher_suites: Vec<String>,
    /// More settings of etcd, by the names of its flags.
    pub etcd_flags: Vec<(String, String)>,
    /// How many learners the cluster accepts at the same time; etcd's own limit if not given.
    pub max_learners: Option<u32>,
    /// Time after which to give up.
    pub timeout: Duration,
}

impl Settings {
    /// Checks the arguments. `towards` are the endpoints of the cluster to join, if any. Settings that are not given
    /// stay as this machine was set up before.
    ///
    /// # Errors
    /// They name the argument, and what would be right.
    pub fn new(args: MemberArgs, towards: &[Endpoint], kept: &Kept) -> Result<Self> {
        let name = match kept.name(args.name) {
            Some(name) => name,
            None => rustix::system::uname().nodename().to_str().context("the host name is not text")?.to_owned(),
        };
        ensure!(
            is_member_name(&name),
            "{name:?} cannot be a member's name; give --name of at most 64 letters, digits, '.', '-' and '_'"
        );
        let extra_sans = args.server_cert_extra_sans.iter().map(String::as_str).filter(|san| !san.is_empty());
        let extra_sans = extra_sans.map(parse_san).collect::<Result<_, _>>();
        let cipher_suites = if args.cipher_suites.is_empty() { &kept.cipher_suites } else { &args.cipher_suites };
        check_cipher_suites(cipher_suites).map_err(|invalid| anyhow!("--cipher-suites: {}", invalid.why))?;
        let version = kept.version(args.version)?;
        let etcd_flags = if args.etcd_flag.is_empty() { kept.flags(&version) } else { args.etcd_flag };
        let pairs: Vec<_> = etcd_flags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        check_flags(&pairs, &version).map_err(|invalid| anyhow!("--etcd-flag {invalid}"))?;
        let max_learners = kept.max_learners(args.max_learners, &version)?;
        let address = address::member_address(kept.address(args.bind_address), towards);
        Ok(Self {
            name,
            address: address.context("this member's address cannot be used")?,
            version,
            etcd_flags,
            max_learners,
            release_url: release_url(&args.release_url)?,
            release_sha256: args.release_sha256,
            download_connect_timeout: args.download_connect_timeout,
            certs_dir: plain_path("--certs-dir", kept.certs_dir(args.certs_dir))?,
            extra_sans: extra_sans.map_err(|why| anyhow!("--server-cert-extra-sans: {why}"))?,
            install_dir: plain_path("--install-dir", kept.install_dir(args.install_dir))?,
            data_dir: plain_path("--data-dir", kept.data_dir(args.data_dir)?)?,
            cipher_suites: cipher_suites.clone(),
            timeout: args.timeout,
        })
    }

    /// The client URL of this member.
    pub fn client_endpoint(&self) -> Endpoint {
        Endpoint::at(self.address, CLIENT_PORT)
    }

    /// The peer URL of this member.
    pub fn peer_endpoint(&self) -> Endpoint {
        Endpoint::at(self.address, PEER_PORT)
    }

    /// The paths of all files, below `root`.
    pub fn paths(&self, root: &Path) -> Paths {
        Paths::new(root, &self.install_dir, &self.data_dir, &self.certs_dir)
    }
}

/// Whether a text is valid as a member's name in `ETCD_INITIAL_CLUSTER`, in a unit's environment and in a certificate.
pub fn is_member_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(allowed)
}

fn release_url(text: &str) -> Result<String> {
    let url = reqwest::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    ensure!(
        url.is_some(),
        "--release-url {:?} is not a URL; write it like {}",
        without_credentials(text),
        DEFAULT_RELEASE_URL
    );
    Ok(text.trim_end_matches('/').to_owned())
}

/// Paths end up in a unit file and in shell scripts, where other characters would need quoting of three kinds.
fn plain_path(flag: &str, path: PathBuf) -> Result<PathBuf> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._@:+-".contains(&b);
    let text = path.to_str().unwrap_or_default();
    let no_dots = !text.split('/').any(|part| part == "." || part == "..");
    ensure!(
        path.is_absolute() && path != Path::new("/") && text.bytes().all(plain) && no_dots,
        "{flag} {path:?} cannot be used; give an absolute path of letters, digits and /._@:+- without . and .. parts"
    );
    Ok(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::{Command, parse};
    use rstest::rstest;

    /// Settings for the tests of other modules.
    pub(crate) fn example() -> Settings {
        let mut settings = settings(&["--name", "etcd-0", "--server-cert-extra-sans", "etcd.example.com"]).unwrap();
        settings.address = "10.0.0.1".parse().unwrap();
        settings
    }

    fn settings(args: &[&str]) -> Result<Settings> {
        let line = ["etcdadm", "init", "--bind-address", "127.0.0.1"].iter().chain(args).map(Into::into);
        let Command::Init(init) = parse(line).unwrap().command else { unreachable!() };
        Settings::new(init.member, &[], &Kept::default())
    }

    #[test]
    fn defaults_are_those_of_the_replaced_program() {
        let settings = settings(&["--name", "etcd-0"]).unwrap();
        assert_eq!(settings.install_dir, Path::new("/opt/bin/"));
        assert_eq!(settings.data_dir, Path::new("/var/lib/etcd"));
        assert_eq!(settings.certs_dir, Path::new("/etc/etcd/pki"));
        assert_eq!(settings.client_endpoint().to_string(), "https://127.0.0.1:2379");
        assert_eq!(settings.peer_endpoint().to_string(), "https://127.0.0.1:2380");
        assert!(settings.release_sha256.is_none() && settings.cipher_suites.is_empty());
    }

    #[test]
    fn the_host_name_is_the_default_name() {
        let host_name = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        assert_eq!(settings(&[]).unwrap().name, host_name);
    }

    #[rstest]
    #[case(&["--name", "a b"], "--name")]
    #[case(&["--name", ""], "--name")]
    #[case(&["--name", "a=b"], "--name")]
    #[case(&["--data-dir", "var/lib/etcd"], "--data-dir")]
    #[case(&["--data-dir", "/"], "--data-dir")]
    #[case(&["--data-dir", "/var/../etc"], "--data-dir")]
    #[case(&["--install-dir", "/opt/my bin"], "--install-dir")]
    #[case(&["--certs-dir", "/etc/$HOME"], "--certs-dir")]
    #[case(&["--certs-dir", "/etc/a'b"], "--certs-dir")]
    #[case(&["--data-dir", "/var/lib/%n"], "--data-dir")]
    #[case(&["--server-cert-extra-sans", "etcd.example.com,not a name"], "--server-cert-extra-sans")]
    #[case(&["--release-url", "ftp://example.com"], "--release-url")]
    #[case(&["--release-url", "example.com/etcd"], "--release-url")]
    #[case(&["--cipher-suites", "TLS_FOO"], "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")]
    #[case(&["--cipher-suites", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"], "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")]
    #[case(&["--etcd-flag", "max-learners=3"], "--max-learners")]
    #[case(&["--etcd-flag", "snapshot-count=1"], "snapshot-count")]
    #[case(&["--bind-address", "192.0.2.9"], "--bind-address")]
    fn wrong_arguments_are_named(#[case] args: &[&str], #[case] named: &str) {
        let message = format!("{:#}", settings(args).unwrap_err());
        assert!(message.contains(named), "{message}");
    }

    #[rstest]
    #[case("ftp://user:secret@example.com/etcd")]
    #[case("user:secret@example.com/etcd")]
    #[case("https//user:secret@example.com/etcd")]
    #[case("file://user:secret@example.com/etcd")]
    #[case("https://user:se@cret@exa mple.com")]
    fn a_release_url_that_is_refused_is_shown_without_its_password(#[case] url: &str) {
        let message = format!("{:#}", settings(&["--release-url", url]).unwrap_err());
        assert!(message.contains("--release-url") && message.contains("mple.com"), "{message}");
        assert!(!message.contains("cret") && !message.contains("user"), "{message}");
    }

    #[test]
    fn extra_names_may_repeat_and_mix() {
        let settings =
            settings(&["--server-cert-extra-sans=10.1.2.3,fd00::1", "--server-cert-extra-sans", "*.Example.com,"]);
        let expected = [
            San::Ip("10.1.2.3".parse().unwrap()),
            San::Ip("fd00::1".parse().unwrap()),
            San::Dns("*.example.com".to_owned()),
        ];
        assert_eq!(settings.unwrap().extra_sans, expected);
    }
}
