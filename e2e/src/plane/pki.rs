//! The plane's certificates. They last as long as a plane does, so every start makes new ones.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::world;

/// Files of the plane's certificates and keys.
#[derive(Debug, Clone)]
pub(super) struct Pki {
    /// The authority's certificate as PEM.
    pub authority: String,
    /// Its file.
    pub authority_file: PathBuf,
    /// Certificate of every server of the plane, API server and webhooks, on loopback and at the
    /// world's address.
    pub server_certificate: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// Public key that verifies service account tokens.
    pub service_account_public: PathBuf,
    /// Private key that signs service account tokens.
    pub service_account_private: PathBuf,
}

impl Pki {
    /// Makes them all in `directory`.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "management-plane");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let names = ["localhost", "kubernetes", "kubernetes.default.svc", "127.0.0.1", world::ADDRESS];
        let mut params = CertificateParams::new(names.map(str::to_owned))?;
        params.distinguished_name.push(DnType::CommonName, "management-plane-server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server = params.signed_by(&server_key, &authority)?;
        let service_account = KeyPair::generate()?;

        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            authority_file: write("ca.crt", &authority.pem())?,
            authority: authority.pem(),
            // The file names that webhook servers look for in their directory.
            server_certificate: write("tls.crt", &server.pem())?,
            server_key: write("tls.key", &server_key.serialize_pem())?,
            service_account_public: write("service-account.pub", &service_account.public_key_pem())?,
            service_account_private: write("service-account.key", &service_account.serialize_pem())?,
        })
    }
}
