//! TLS servers and clients from PEM texts, and certificates of an etcd cluster's own CA.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A certificate and its key.
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// A certificate authority, such as an etcd cluster's.
pub struct Authority {
    /// Its certificate.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The authority with this certificate and key.
    ///
    /// # Errors
    /// When a text cannot be used.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self> {
        let key = KeyPair::from_pem(key).context("the key of the CA")?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).context("the CA")?;
        Ok(Self { certificate: certificate.to_owned(), issuer })
    }

    /// A new authority with this name, and its key.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn create(name: &str) -> Result<(Self, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        let key = key.serialize_pem();
        Ok((Self::from_pem(&certificate, &key)?, key))
    }

    /// A member's identity. With it, the member serves clients at an address, and is a client of other members.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn member(&self, name: &str, address: Ipv4Addr) -> Result<Identity> {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, vec![address.to_string()], usages, None)
    }

    /// A member's identity for these names and addresses. It expires on this day: year, month and day.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn member_until(&self, name: &str, names: Vec<String>, day: (i32, u8, u8)) -> Result<Identity> {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, names, usages, Some(day))
    }

    /// A client's identity.
    ///
    /// # Errors
    /// When no certificate can be made.
    pub fn client(&self, name: &str) -> Result<Identity> {
        self.issue(name, Vec::new(), vec![ExtendedKeyUsagePurpose::ClientAuth], None)
    }

    fn issue(
        &self,
        name: &str,
        names: Vec<String>,
        usages: Vec<ExtendedKeyUsagePurpose>,
        until: Option<(i32, u8, u8)>,
    ) -> Result<Identity> {
        let mut params = CertificateParams::new(names)?;
        if let Some((year, month, day)) = until {
            params.not_after = date_time_ymd(year, month, day);
        }
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let key = KeyPair::generate()?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// A TLS server with this certificate. With `clients`, the certificate of an authority, clients have to present a
/// certificate of that authority. `protocols` are those of ALPN, in order of preference.
///
/// # Errors
/// When a text cannot be used.
pub fn acceptor(own: &Identity, clients: Option<&str>, protocols: &[&[u8]]) -> Result<TlsAcceptor> {
    let (chain, key) = parts(own)?;
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let roots = Arc::new(roots(authority)?);
            config.with_client_cert_verifier(WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?)
        }
    };
    let mut config = config.with_single_cert(chain, key)?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A TLS client that trusts this authority. It presents the certificate `own`, if there is one, and speaks `protocol`,
/// if there is one.
///
/// # Errors
/// When a text cannot be used.
pub fn connector(authority: &str, own: Option<&Identity>, protocol: Option<&[u8]>) -> Result<TlsConnector> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(authority)?);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = parts(own)?;
            config.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn parts(own: &Identity) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).context("read a private key")?;
    Ok((certificates(&own.certificate)?, key))
}

fn roots(pem: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().context("read certificates")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
