//! The certificate of the server: from files, which are read again and again, or self-signed.

use anyhow::Context;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How often the files are read again. cert-manager renews them weeks before they expire.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// A certificate and its key.
#[derive(Debug)]
pub(super) struct Certificate {
    present: RwLock<Arc<CertifiedKey>>,
    /// Where it is read from.
    folder: Option<PathBuf>,
}

impl Certificate {
    /// A self-signed certificate. It protects what is read from eavesdroppers, and does not prove who serves it.
    pub(super) fn self_signed() -> anyhow::Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let present = CertifiedKey::from_der(vec![made.cert.der().clone()], key, &default_provider())?;
        Ok(Self { present: RwLock::new(Arc::new(present)), folder: None })
    }

    /// Reads `tls.crt` and `tls.key` of a folder, such as a mounted Secret.
    pub(super) fn from_folder(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self { present: RwLock::new(Arc::new(read(folder)?)), folder: Some(folder.to_owned()) })
    }

    /// The certificate that callers see.
    #[cfg(test)]
    pub(super) fn shown(&self) -> CertificateDer<'static> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).cert[0].clone()
    }

    /// Reads the files again and again. If they cannot be used, the earlier certificate stays in place.
    pub(super) async fn follow(&self) {
        let Some(folder) = &self.folder else { return pending().await };
        loop {
            tokio::time::sleep(READ_AGAIN).await;
            match self.read_again(folder) {
                Ok(true) => tracing::info!(folder = %folder.display(), "the certificate of the metrics is another one"),
                Ok(false) => {}
                Err(error) => tracing::warn!(error = format!("{error:#}"), "the certificate of the metrics stays"),
            }
        }
    }

    /// Reads the files. Returns whether the certificate has changed.
    fn read_again(&self, folder: &Path) -> anyhow::Result<bool> {
        let new = read(folder)?;
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        let differs = present.cert != new.cert;
        *present = Arc::new(new);
        Ok(differs)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

fn read(folder: &Path) -> anyhow::Result<CertifiedKey> {
    let (chain, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let bytes = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(&chain)?).collect();
    let certificates = certificates.with_context(|| chain.display().to_string())?;
    anyhow::ensure!(!certificates.is_empty(), "{}: no certificate", chain.display());
    let secret = PrivateKeyDer::from_pem_slice(&bytes(&key)?).with_context(|| key.display().to_string())?;
    let pair = CertifiedKey::from_der(certificates, secret, &default_provider());
    pair.with_context(|| format!("{} and {}", chain.display(), key.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(folder: &Path, certificate: &str, key: &str) {
        fs::write(folder.join("tls.crt"), certificate).unwrap();
        fs::write(folder.join("tls.key"), key).unwrap();
    }

    fn made() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["metrics".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_renewed_certificate_is_taken_over_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(Certificate::from_folder(folder).unwrap_err().to_string().contains("tls.crt"));
        let (first, second) = (made(), made());
        write(folder, &first.0, &first.1);
        let certificate = Certificate::from_folder(folder).unwrap();
        let shown = || certificate.present.read().unwrap().cert.clone();
        let before = shown();
        assert!(!certificate.read_again(folder).unwrap(), "nothing has changed");
        write(folder, &second.0, &first.1);
        let error = certificate.read_again(folder).unwrap_err();
        assert!(format!("{error:#}").contains("tls.key"), "{error:#}");
        assert_eq!(shown(), before, "half of it is written");
        write(folder, &second.0, &second.1);
        assert!(certificate.read_again(folder).unwrap());
        assert_ne!(shown(), before);
    }
}
