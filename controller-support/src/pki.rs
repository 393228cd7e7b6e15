//! Whether the content of a Secret is a CA that etcd's certificates can be signed with. Pure.

use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeSet;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a Secret's content is not a CA, in words for its owner. Contains nothing of the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAuthority {
    /// No certificate.
    #[error("tls.crt is not a certificate in PEM")]
    Certificate,
    /// A certificate that may not sign others.
    #[error("tls.crt is not the certificate of a CA (basicConstraints CA:TRUE)")]
    NotAnAuthority,
    /// A subject that certificates cannot name as their issuer: rcgen keeps one value of each attribute.
    #[error(
        "the subject of tls.crt has an attribute twice, as in DC=com, DC=example, or several in one name; use a CA \
         with another subject"
    )]
    Subject,
    /// No key, or one of a kind that etcd's certificates cannot be signed with.
    #[error("tls.key is not a private key in PEM of a supported kind (ECDSA P-256 or P-384, RSA, Ed25519)")]
    Key,
    /// Certificate and key are not a pair.
    #[error("tls.key does not belong to tls.crt")]
    NotAPair,
}

/// Checks a CA, given in PEM, that somebody else may have made.
///
/// # Errors
/// What is wrong with it.
pub fn check_authority(cert: &[u8], key: &[u8]) -> Result<(), InvalidAuthority> {
    let der = CertificateDer::from_pem_slice(cert).map_err(|_| InvalidAuthority::Certificate)?;
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|_| InvalidAuthority::Certificate)?;
    if !parsed.is_ca() {
        return Err(InvalidAuthority::NotAnAuthority);
    }
    let names: Vec<Vec<String>> = parsed
        .subject()
        .iter_rdn()
        .map(|name| name.iter().map(|attribute| attribute.attr_type().to_id_string()).collect())
        .collect();
    let distinct: BTreeSet<&String> = names.iter().flatten().collect();
    if distinct.len() < names.iter().flatten().count() || names.iter().any(|name| name.len() > 1) {
        return Err(InvalidAuthority::Subject);
    }
    let private = PrivateKeyDer::from_pem_slice(key).map_err(|_| InvalidAuthority::Key)?;
    let signing = any_supported_type(&private).map_err(|_| InvalidAuthority::Key)?;
    // ring returns the public key for every kind of key that it supports.
    let public = signing.public_key().ok_or(InvalidAuthority::Key)?;
    if public.as_ref() != parsed.public_key().raw {
        return Err(InvalidAuthority::NotAPair);
    }
    Ok(())
}
