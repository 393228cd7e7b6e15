//! TLS in place of a member and in place of the manager, with certificates of the cluster's own CA.

use super::relay::HTTP_2;
use crate::bed::ClusterHandle;
use crate::tls::{self, Authority, Identity};
use anyhow::{Context, Result};
use api::names;
use rustls::pki_types::CertificateDer;
use std::net::Ipv4Addr;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The common name in the manager's certificates.
const MANAGER: &str = "etcd-cluster-controller";

/// Both sides of one connection.
pub(super) struct EtcdTls {
    /// The member's side.
    pub(super) acceptor: TlsAcceptor,
    authority: String,
    manager: Identity,
}

impl EtcdTls {
    /// The sides for the member with this address.
    ///
    /// # Errors
    /// When the cluster has no CA yet.
    pub(super) async fn of(handle: &ClusterHandle, address: Ipv4Addr) -> Result<Self> {
        let secret = names::ca_secret(&handle.cluster);
        let authority = handle.secret(&secret, "tls.crt").await?;
        let cluster =
            Authority::from_pem(&authority, &handle.secret(&secret, "tls.key").await?).context("etcd's CA")?;
        let member = cluster.member("member", address)?;
        let manager = cluster.client(MANAGER)?;
        let acceptor = tls::acceptor(&member, Some(&authority), &[HTTP_2, b"http/1.1"])?;
        Ok(Self { acceptor, authority, manager })
    }

    /// The manager's side. It speaks `protocol`, if there is one.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub(super) fn connector(&self, protocol: Option<&[u8]>) -> Result<TlsConnector> {
        tls::connector(&self.authority, Some(&self.manager), protocol)
    }
}

/// Whether the client with these certificates is our manager.
pub(super) fn is_managers(shown: Option<&[CertificateDer<'_>]>) -> bool {
    let Some(certificate) = shown.and_then(<[_]>::first) else { return false };
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    certificate.subject().iter_common_name().any(|name| name.as_str().is_ok_and(|name| name == MANAGER))
}
