//! A leaf certificate: how it is issued, and whether an existing one is still good.

use std::net::IpAddr;

use rcgen::{
    CertificateParams, CertifiedKey, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    SanType,
};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::authority::{Authority, CLOCK_SKEW};
use super::key;
use crate::san::San;

/// How long a leaf is good.
const LIFETIME: Duration = Duration::days(365);

/// The content of a leaf certificate.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Its holder.
    pub common_name: String,
    /// The group, for client certificates.
    pub organization: Option<&'static str>,
    /// The names that it is valid for.
    pub sans: Vec<San>,
    /// Whether a server may present it. A client may present any leaf.
    pub server: bool,
}

impl Leaf {
    /// Issues the leaf with a new ECDSA P-256 key.
    ///
    /// # Errors
    /// When a certificate cannot contain one of the names, or the authority's key fails.
    pub fn issue(&self, authority: &Authority, now: OffsetDateTime) -> Result<CertifiedKey<KeyPair>, rcgen::Error> {
        let signing_key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = self.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.distinguished_name.push(DnType::CommonName, self.common_name.as_str());
        for san in &self.sans {
            params.subject_alt_names.push(match san {
                San::Ip(ip) => SanType::IpAddress(*ip),
                San::Dns(name) => SanType::DnsName(name.as_str().try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = self.usages();
        params.use_authority_key_identifier_extension = true;
        params.not_before = authority.not_before.max(now - CLOCK_SKEW);
        params.not_after = authority.not_after.min(now + LIFETIME);
        let cert = params.signed_by(&signing_key, &authority.issuer)?;
        Ok(CertifiedKey { cert, signing_key })
    }

    fn usages(&self) -> Vec<ExtendedKeyUsagePurpose> {
        let server = self.server.then_some(ExtendedKeyUsagePurpose::ServerAuth);
        server.into_iter().chain([ExtendedKeyUsagePurpose::ClientAuth]).collect()
    }

    /// Checks whether an existing certificate and key are good for this leaf now.
    ///
    /// # Errors
    /// The reason why they are not, for the log.
    pub fn fits(
        &self,
        certificate_pem: &[u8],
        key_pem: &[u8],
        authority: &Authority,
        now: OffsetDateTime,
    ) -> Result<(), String> {
        let key = key::parse(key_pem)?;
        let block = Pem::iter_from_buffer(certificate_pem).next();
        let block = block.and_then(Result::ok).ok_or("it is not a PEM file")?;
        let (_, leaf) = X509Certificate::from_der(&block.contents).map_err(|_| "it is damaged")?;
        let (_, ca) = X509Certificate::from_der(&authority.certificate).map_err(|_| "the authority is damaged")?;
        let yes_or = |good: bool, why: &str| if good { Ok(()) } else { Err(why.to_owned()) };

        yes_or(leaf.public_key().subject_public_key.data.as_ref() == key.public_key_raw(), "its key is another one")?;
        yes_or(leaf.issuer().as_raw() == ca.subject().as_raw(), "it is of another authority")?;
        yes_or(leaf.verify_signature(Some(ca.public_key())).is_ok(), "it is of another authority")?;
        yes_or(leaf.validity().not_before.to_datetime() <= now, "it is not good yet")?;
        yes_or(now < leaf.validity().not_after.to_datetime(), "it has expired")?;
        let common_name = leaf.subject().iter_common_name().next().and_then(|cn| cn.as_str().ok());
        yes_or(common_name == Some(self.common_name.as_str()), "it is for another name")?;
        let organization = leaf.subject().iter_organization().next().and_then(|o| o.as_str().ok());
        yes_or(organization == self.organization, "it is for another group")?;
        let usage = leaf.extended_key_usage().ok().flatten();
        let usage_fits = usage.is_some_and(|u| u.value.client_auth && (u.value.server_auth || !self.server));
        yes_or(usage_fits, "it may not be used this way")?;
        let names = names_of(&leaf).map_err(|_| "its names are damaged")?;
        for san in &self.sans {
            yes_or(names.contains(san), &format!("it does not hold for {san:?}"))?;
        }
        Ok(())
    }
}

/// The names in a certificate; none if it is damaged.
pub(super) fn names(certificate_pem: &[u8]) -> Vec<San> {
    let Some(Ok(block)) = Pem::iter_from_buffer(certificate_pem).next() else { return Vec::new() };
    let Ok((_, leaf)) = X509Certificate::from_der(&block.contents) else { return Vec::new() };
    names_of(&leaf).unwrap_or_default()
}

fn names_of(leaf: &X509Certificate<'_>) -> Result<Vec<San>, X509Error> {
    let names = leaf.subject_alternative_name()?;
    let names = names.iter().flat_map(|extension| &extension.value.general_names);
    let san = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(San::Dns((*name).to_owned())),
        GeneralName::IPAddress(octets) => {
            let v6 = || <[u8; 16]>::try_from(*octets).map(IpAddr::from);
            <[u8; 4]>::try_from(*octets).map(IpAddr::from).or_else(|_| v6()).ok().map(San::Ip)
        }
        _ => None,
    };
    Ok(names.filter_map(san).collect())
}
