//! The private key of a CA, in any of the usual forms: PKCS#8, PKCS#1 (RSA) and SEC 1 (EC).

use rcgen::{
    Error, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256, PublicKeyData,
    SignatureAlgorithm, SigningKey,
};
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::Signer;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};

/// Signature schemes, and what certificates call them. The first scheme that a key supports is used.
const SCHEMES: [(SignatureScheme, &SignatureAlgorithm); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, &PKCS_ECDSA_P256_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, &PKCS_ECDSA_P384_SHA384),
    (SignatureScheme::RSA_PKCS1_SHA256, &PKCS_RSA_SHA256),
    (SignatureScheme::ED25519, &PKCS_ED25519),
];

/// The key of a CA, to sign with.
pub(super) struct CaKey {
    signer: Box<dyn Signer>,
    algorithm: &'static SignatureAlgorithm,
    public_bits: Vec<u8>,
}

impl CaKey {
    /// Reads a key in PEM. `None`: it is not a key, or certificates for etcd cannot be signed with a key of this kind.
    pub(super) fn from_pem(pem: &str) -> Option<Self> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()?;
        let key = any_supported_type(&der).ok()?;
        let choose = |(scheme, algorithm)| Some((key.choose_scheme(&[scheme])?, algorithm));
        let (signer, algorithm) = SCHEMES.into_iter().find_map(choose)?;
        let public = key.public_key()?;
        let (_, parsed) = SubjectPublicKeyInfo::from_der(&public).ok()?;
        let public_bits = parsed.subject_public_key.data.to_vec();
        Some(Self { signer, algorithm, public_bits })
    }
}

impl PublicKeyData for CaKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public_bits
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl SigningKey for CaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.signer.sign(message).map_err(|_| Error::RemoteKeyError)
    }
}
