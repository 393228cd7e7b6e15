//! etcd's CA as its Secret holds it.

use controller_support::pki::{InvalidAuthority, check_authority};
use std::fmt;

/// A CA certificate with its key, in PEM. `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificateAuthority {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl CertificateAuthority {
    /// Reads certificate and key, and checks that a node can sign its certificates with them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, InvalidAuthority> {
        check_authority(cert, key)?;
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
