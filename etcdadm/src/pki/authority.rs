//! The certificate authority of the cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::key;
use crate::files;
use crate::paths::Paths;

/// How long an authority made by `init` is good.
const LIFETIME: Duration = Duration::days(3650);
/// How far the clock of a machine may be behind the clock of the machine that issued a certificate.
pub(super) const CLOCK_SKEW: Duration = Duration::hours(24);

/// File name of the authority.
pub const AUTHORITY: &str = "ca";

/// A certificate authority with its key, checked to belong together.
#[derive(Debug)]
pub struct Authority {
    /// ca.crt as it is, including any other certificates in it.
    pub bundle_pem: String,
    /// DER of the certificate that the key matches.
    pub(super) certificate: Vec<u8>,
    /// No leaf is good before this.
    pub(super) not_before: OffsetDateTime,
    /// No leaf is good beyond this.
    pub(super) not_after: OffsetDateTime,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Loads ca.crt and ca.key; `None` if neither exists.
    ///
    /// # Errors
    /// When only one of them exists, they do not match, or they cannot sign leaves now.
    pub fn load(paths: &Paths, now: OffsetDateTime) -> Result<Option<Self>> {
        let (certificate, key) = (paths.certificate(AUTHORITY), paths.key(AUTHORITY));
        if certificate.exists() && !key.exists() {
            // `create` was interrupted before its last step.
            files::rename(&pending(&key), &key)?;
        }
        match (files::read(&certificate)?, files::read(&key)?) {
            (None, None) => Ok(None),
            (Some(certificate_pem), Some(key_pem)) => {
                // cloud-init writes them only once, and syncs nothing. Without them, etcd would trust nobody after a
                // power failure.
                files::sync(&certificate)?;
                files::sync(&key)?;
                Self::from_pem(&certificate_pem, &key_pem, now, &certificate, &key).map(Some)
            }
            (Some(_), None) => bail!("{} is missing; it belongs to {}", key.display(), certificate.display()),
            (None, Some(_)) => bail!("{} is missing; it belongs to {}", certificate.display(), key.display()),
        }
    }

    fn from_pem(bundle: &[u8], key_pem: &[u8], now: OffsetDateTime, bundle_at: &Path, key_at: &Path) -> Result<Self> {
        let at = || format!("the certificate authority in {} is not usable", bundle_at.display());
        let key = key::parse(key_pem).map_err(|why| anyhow!("{}: {why}", key_at.display()))?;
        let mut certificates = Vec::new();
        for block in Pem::iter_from_buffer(bundle) {
            let block = block.context("it is not a PEM file").with_context(at)?;
            if block.label == "CERTIFICATE" {
                certificates.push(block.contents);
            }
        }
        ensure!(!certificates.is_empty(), "{}: it holds no certificate in PEM form", at());
        let mut own = None;
        for der in certificates {
            let (_, parsed) = X509Certificate::from_der(&der).context("a certificate is damaged").with_context(at)?;
            if parsed.public_key().subject_public_key.data.as_ref() == key.public_key_raw() {
                let validity = check(&parsed, now).with_context(at)?;
                own = Some((der, validity));
                break;
            }
        }
        let Some((certificate, (not_before, not_after))) = own else {
            bail!("{} is the key of none of the certificates in {}", key_at.display(), bundle_at.display());
        };
        let issuer = Issuer::from_ca_cert_der(&certificate.as_slice().into(), key).with_context(at)?;
        let bundle_pem = String::from_utf8(bundle.to_vec()).context("it is not text").with_context(at)?;
        Ok(Self { bundle_pem, certificate, not_before, not_after, issuer })
    }

    /// Makes a new authority for a new cluster, and writes ca.crt and ca.key.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn create(paths: &Paths, now: OffsetDateTime) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "etcd-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        params.not_before = now - CLOCK_SKEW;
        params.not_after = now + LIFETIME;
        let certificate = params.self_signed(&key)?.pem();
        // If this is interrupted before the certificate exists, the next run makes another authority. After that, the
        // next run continues with this one.
        let (certificate_at, key_at) = (paths.certificate(AUTHORITY), paths.key(AUTHORITY));
        files::write(&pending(&key_at), key.serialize_pem().as_bytes(), 0o600)?;
        files::write(&certificate_at, certificate.as_bytes(), 0o644)?;
        files::rename(&pending(&key_at), &key_at)?;
        Self::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes(), now, &certificate_at, &key_at)
    }
}

/// Where the key of a new authority is kept until the certificate exists.
fn pending(key: &Path) -> PathBuf {
    key.with_extension("key.new")
}

/// Checks that a certificate can sign leaves now. Returns the start and the end of its validity.
fn check(certificate: &X509Certificate<'_>, now: OffsetDateTime) -> Result<(OffsetDateTime, OffsetDateTime)> {
    ensure!(certificate.is_ca(), "its certificate is not one of a certificate authority (CA:TRUE is missing)");
    if let Ok(Some(usage)) = certificate.key_usage() {
        ensure!(usage.value.key_cert_sign(), "its certificate may not sign others (keyCertSign is missing)");
    }
    let validity = certificate.validity();
    let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
    ensure!(from <= now, "it is good only from {from} on, and this machine's clock says {now}");
    ensure!(now < until, "it expired at {until}, and this machine's clock says {now}");
    Ok((from, until))
}
