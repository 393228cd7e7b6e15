//! What a machine takes from its bootstrap data: which member it becomes, and how.

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::net::Ipv4Addr;

/// The contents of a member's bootstrap data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BootstrapData {
    /// Certificate of etcd's CA.
    pub(super) authority: String,
    /// Its key.
    pub(super) authority_key: String,
    /// Name of the member.
    pub(super) name: String,
    /// How the machine becomes a member.
    pub(super) role: Role,
}

/// How a machine becomes a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// As the first member of a new etcd cluster.
    Init,
    /// As a further member, through one of the members at these addresses.
    Join(Vec<Ipv4Addr>),
}

/// The parts of a cloud-config that are used here.
#[derive(Deserialize)]
struct CloudConfig {
    #[serde(default)]
    write_files: Vec<File>,
    #[serde(default)]
    runcmd: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    path: String,
    #[serde(default)]
    encoding: String,
    content: String,
}

impl BootstrapData {
    /// Reads a cloud-config.
    ///
    /// # Errors
    /// When it is not the cloud-config of a member.
    pub(super) fn read(user_data: &[u8]) -> Result<Self> {
        let config: CloudConfig = serde_yaml::from_slice(user_data).context("the cloud-config")?;
        let file = |path: &str| {
            let file = config.write_files.iter().find(|file| file.path == path);
            file.with_context(|| format!("there is no file {path}"))?.text().with_context(|| path.to_owned())
        };
        let line =
            config.runcmd.iter().find_map(|line| line.split_once("etcdadm ")).context("etcdadm is not called")?.1;
        let mut words = line.split_whitespace().map(|word| word.trim_matches('\''));
        let role = match words.next() {
            Some("init") => Role::Init,
            Some("join") => Role::Join(addresses(words.next().unwrap_or_default())?),
            other => bail!("etcdadm is called with {other:?}"),
        };
        let mut rest = words.skip_while(|word| *word != "--name").skip(1);
        Ok(Self {
            authority: file("/etc/etcd/pki/ca.crt")?,
            authority_key: file("/etc/etcd/pki/ca.key")?,
            name: rest.next().context("etcdadm is called without --name")?.to_owned(),
            role,
        })
    }
}

impl File {
    fn text(&self) -> Result<String> {
        ensure!(self.encoding == "base64", "it is encoded as {:?}", self.encoding);
        let base64: String = self.content.split_whitespace().collect();
        Ok(String::from_utf8(STANDARD.decode(base64)?)?)
    }
}

/// The addresses in a comma-separated list of client URLs.
fn addresses(urls: &str) -> Result<Vec<Ipv4Addr>> {
    let address = |url: &str| {
        let host = url.strip_prefix("https://").and_then(|rest| rest.rsplit_once(':'));
        host.and_then(|(host, _)| host.parse().ok()).with_context(|| format!("{url} is not a client URL"))
    };
    urls.split(',').map(address).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tls::Authority;
    use api::EtcdadmConfigSpec;
    use etcdadm_bootstrap::build::{self, Bootstrap, CertificateAuthority, SecretValues, render};
    use k8s_openapi::jiff::Timestamp;

    fn rendered(role: &build::Role, authority: &CertificateAuthority) -> Vec<u8> {
        let bootstrap = Bootstrap {
            member: "demo-etcd-0",
            role,
            authority,
            spec: &EtcdadmConfigSpec::default(),
            max_learners: Some("3"),
            secrets: &SecretValues::default(),
        };
        render(&bootstrap).unwrap().value.into_bytes()
    }

    #[test]
    fn what_the_bootstrap_provider_renders_is_read() {
        let (authority, key) = Authority::create("etcd-ca").unwrap();
        let pems = CertificateAuthority::from_pem(authority.certificate.as_bytes(), key.as_bytes()).unwrap();
        let init = rendered(&build::Role::Init { not_after: Timestamp::MAX }, &pems);
        let init = BootstrapData::read(&init).unwrap();
        assert_eq!((init.role, init.name.as_str()), (Role::Init, "demo-etcd-0"));
        assert_eq!((init.authority.trim(), init.authority_key.trim()), (authority.certificate.trim(), key.trim()));
        let client_urls = vec!["https://10.78.0.10:2379".to_owned(), "https://10.78.0.11:2379".to_owned()];
        let join =
            BootstrapData::read(&rendered(&build::Role::Join { client_urls, cluster_id: Some(0xc1) }, &pems)).unwrap();
        assert_eq!(join.role, Role::Join(vec![Ipv4Addr::new(10, 78, 0, 10), Ipv4Addr::new(10, 78, 0, 11)]));
    }

    #[test]
    fn bootstrap_data_of_others_are_refused() {
        let kubeadm = BootstrapData::read(b"#cloud-config\nruncmd: [kubeadm init]\n").unwrap_err();
        assert_eq!(kubeadm.to_string(), "etcdadm is not called");
    }
}
