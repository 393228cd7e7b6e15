//! The public part of certificates. Pure.

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use x509_parser::pem::Pem;

/// The public content of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Its holder.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// The start of its validity.
    pub not_before: Timestamp,
    /// The end of its validity.
    pub not_after: Timestamp,
    /// Whether it may sign other certificates.
    pub ca: bool,
}

/// The certificates in a PEM file, if any. Blocks that cannot be parsed are skipped.
#[must_use]
pub fn certificates(pem: &[u8]) -> Vec<Certificate> {
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok).filter(|block| block.label == "CERTIFICATE");
    blocks.filter_map(|block| certificate(&block)).collect()
}

fn certificate(block: &Pem) -> Option<Certificate> {
    let found = block.parse_x509().ok()?;
    let time = |seconds: i64| Timestamp::from_second(seconds).ok();
    Some(Certificate {
        subject: found.subject().to_string(),
        issuer: found.issuer().to_string(),
        not_before: time(found.validity().not_before.timestamp())?,
        not_after: time(found.validity().not_after.timestamp())?,
        ca: found.is_ca(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    #[test]
    fn the_public_part_is_read_and_the_rest_passed_over() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "demo");
        params.not_after = rcgen::date_time_ymd(2030, 1, 2);
        let certificate = params.self_signed(&key).unwrap().pem();
        let file = format!(
            "{}{certificate}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            key.serialize_pem()
        );
        let found = certificates(file.as_bytes());
        assert_eq!(found.len(), 1);
        assert!(found[0].subject.contains("CN=demo"), "{found:?}");
        assert_eq!(found[0].not_after.to_string(), "2030-01-02T00:00:00Z");
        assert!(!found[0].ca);
        assert!(certificates(b"no certificate").is_empty());
    }
}
