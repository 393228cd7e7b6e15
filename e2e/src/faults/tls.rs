//! Both sides of TLS, from texts in PEM.

use anyhow::{Context, Result};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A certificate and its key.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A server with this certificate. With `clients`, the certificate of an authority, clients have to show one of its own.
/// `protocols` are those of ALPN, the best first.
///
/// # Errors
/// When a text cannot be used.
pub(super) fn acceptor(own: &Identity, clients: Option<&str>, protocols: &[&[u8]]) -> Result<TlsAcceptor> {
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

/// A client that trusts this authority, and shows this certificate if there is one. It speaks `protocol` if there is one.
///
/// # Errors
/// When a text cannot be used.
pub(super) fn connector(authority: &str, own: Option<&Identity>, protocol: Option<&[u8]>) -> Result<TlsConnector> {
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
