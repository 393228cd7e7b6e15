//! etcd's CA as its Secret holds it.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A CA certificate with its key, in PEM. `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAuthority {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// Why a Secret's content is not a CA. Holds nothing of the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAuthority {
    /// No certificate.
    #[error("tls.crt is not a certificate in PEM")]
    Certificate,
    /// A certificate that may not sign others.
    #[error("tls.crt is not the certificate of a CA (basicConstraints CA:TRUE)")]
    NotAnAuthority,
    /// No key, or one of a kind that etcd's certificates cannot be signed with.
    #[error("tls.key is not a private key in PEM of a supported kind (ECDSA P-256 or P-384, RSA, Ed25519)")]
    Key,
    /// Certificate and key are not a pair.
    #[error("tls.key does not belong to tls.crt")]
    NotAPair,
}

impl CertificateAuthority {
    /// Reads certificate and key, and checks that a node can sign its certificates with them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, InvalidAuthority> {
        let der = CertificateDer::from_pem_slice(cert).map_err(|_| InvalidAuthority::Certificate)?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| InvalidAuthority::Certificate)?;
        if !parsed.is_ca() {
            return Err(InvalidAuthority::NotAnAuthority);
        }
        let private = PrivateKeyDer::from_pem_slice(key).map_err(|_| InvalidAuthority::Key)?;
        let signing = rustls::crypto::ring::sign::any_supported_type(&private).map_err(|_| InvalidAuthority::Key)?;
        // Every kind of key that ring supports gives its public key.
        let public = signing.public_key().ok_or(InvalidAuthority::Key)?;
        if public.as_ref() != parsed.public_key().raw {
            return Err(InvalidAuthority::NotAPair);
        }
        Ok(Self { cert: cert.to_vec(), key: key.to_vec() })
    }

    /// The certificate, in PEM.
    #[must_use]
    pub fn cert(&self) -> &[u8] {
        &self.cert
    }

    /// The key, in PEM.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateAuthority(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    fn pair(ca: bool, key: &KeyPair) -> String {
        let mut params = CertificateParams::default();
        if ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(key).unwrap().pem()
    }

    /// The PKCS#1 form of an RSA key, which older tools write.
    const RSA_PKCS1: &str = include_str!("testdata/rsa-ca.key");
    const RSA_CERT: &str = include_str!("testdata/rsa-ca.crt");

    #[test]
    fn a_pair_is_accepted_and_anything_else_is_named() {
        let key = KeyPair::generate().unwrap();
        let (cert, pem) = (pair(true, &key), key.serialize_pem());
        let read = |cert: &str, key: &str| CertificateAuthority::from_pem(cert.as_bytes(), key.as_bytes());
        let good = read(&cert, &pem).unwrap();
        assert_eq!((good.cert(), good.key()), (cert.as_bytes(), pem.as_bytes()));
        assert_eq!(format!("{good:?}"), "CertificateAuthority(..)");

        assert!(read(RSA_CERT, RSA_PKCS1).is_ok());
        assert_eq!(read("", &pem), Err(InvalidAuthority::Certificate));
        assert_eq!(read(&pem, &pem), Err(InvalidAuthority::Certificate));
        assert_eq!(read(&pair(false, &key), &pem), Err(InvalidAuthority::NotAnAuthority));
        assert_eq!(read(&cert, &cert), Err(InvalidAuthority::Key));
        assert_eq!(read(&cert, &KeyPair::generate().unwrap().serialize_pem()), Err(InvalidAuthority::NotAPair));
    }
}
