//! Certificates: the CA of an etcd cluster, and what the CA signs. Keys that are made here are ECDSA P-256.
//!
//! Not pure, because keys are random, so only `execute` and `observe` use it.

mod ca_key;
mod judged;

pub(crate) use judged::{ClientCertificate, JudgedCas, read_ca};

use ca_key::CaKey;
use controller_support::pki::check_authority;
use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::BTreeSet;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// How long a CA is valid.
const CA_LIFE: Duration = Duration::days(3650);
/// How long this controller's client certificate is valid.
const CONTROLLER_LIFE: Duration = Duration::days(365);
/// How long the API servers' client certificate is valid. A control-plane machine gets a copy when it is made, and
/// never gets another one. The members' certificates last a year, and the control plane rolls out with the members, so
/// a control-plane machine lives for a year at most. A copy that is valid for more than a year therefore outlives its
/// machine.
const API_SERVER_LIFE: Duration = Duration::days(730);
/// How long the client certificate for Prometheus is valid. It cannot be revoked, and it gives access to all of etcd.
const METRICS_LIFE: Duration = Duration::days(90);
/// How far the clock of a machine may be behind ours. It is the same as in etcdadm, because machines set their clocks
/// only while they boot.
const CLOCK_SKEW: Duration = Duration::hours(24);

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CertAndKey {
    /// The certificate.
    pub(crate) cert: String,
    /// Its private key. A key that was made here is PKCS#8; for the key of a CA that a user provides, see `ca_key.rs`.
    pub(crate) key: String,
}

/// Who a client certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// The API servers of the control plane.
    ApiServer,
    /// This controller, when it looks after the members.
    Controller,
    /// Prometheus, for etcd's own metrics.
    Metrics,
}

impl Client {
    fn life(self) -> Duration {
        match self {
            Self::ApiServer => API_SERVER_LIFE,
            Self::Controller => CONTROLLER_LIFE,
            Self::Metrics => METRICS_LIFE,
        }
    }

    fn common_name(self) -> &'static str {
        match self {
            // The name that kubeadm gives it.
            Self::ApiServer => "kube-apiserver-etcd-client",
            Self::Controller => "etcd-cluster-controller",
            Self::Metrics => "etcd-metrics-client",
        }
    }

    /// The organization in the certificate's subject. etcd ignores it. The certificate for Prometheus has none, so that
    /// it gives no rights if it is shown to an API server by mistake.
    fn organization(self) -> Option<&'static str> {
        (self != Self::Metrics).then_some("system:masters")
    }
}

/// Makes the CA of an etcd cluster.
pub(crate) fn new_ca(cluster: &str, now: OffsetDateTime) -> Result<CertAndKey, rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(&format!("{cluster}-etcd-ca"), None, now, CA_LIFE);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertAndKey { cert: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// Signs a client certificate. Fails if the CA is not a certificate with its key in PEM.
pub(crate) fn new_client(ca: &CertAndKey, client: Client, now: OffsetDateTime) -> Result<CertAndKey, rcgen::Error> {
    let signing = CaKey::from_pem(&ca.key).ok_or(rcgen::Error::CouldNotParseKeyPair)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.cert, signing)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = params(client.common_name(), client.organization(), now, client.life());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(CertAndKey { cert: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

/// Checks a CA that a user has made. The error says what is wrong, in words for its owner.
fn check_ca(ca: &CertAndKey) -> Result<(), String> {
    check_authority(ca.cert.as_bytes(), ca.key.as_bytes()).map_err(|invalid| invalid.to_string())
}

/// Whether one of a CA's certificates has signed a certificate. A CA that is being exchanged has several.
pub(crate) fn is_signed_by(cert: &str, authorities: &str) -> bool {
    let Ok(leaf) = CertificateDer::from_pem_slice(cert.as_bytes()) else { return false };
    let Ok((_, leaf)) = X509Certificate::from_der(&leaf) else { return false };
    CertificateDer::pem_slice_iter(authorities.as_bytes()).filter_map(Result::ok).any(|authority| {
        X509Certificate::from_der(&authority)
            .is_ok_and(|(_, authority)| leaf.verify_signature(Some(authority.public_key())).is_ok())
    })
}

/// Whether the certificates of two CAs have no key in common. False if the certificates of either CA cannot be read.
pub(crate) fn is_another_ca(one: &str, other: &str) -> bool {
    let keys = |authorities: &str| -> BTreeSet<Vec<u8>> {
        let authorities = CertificateDer::pem_slice_iter(authorities.as_bytes()).filter_map(Result::ok);
        let key = |der: CertificateDer<'_>| Some(X509Certificate::from_der(&der).ok()?.1.public_key().raw.to_vec());
        authorities.filter_map(key).collect()
    };
    let (one, other) = (keys(one), keys(other));
    !one.is_empty() && !other.is_empty() && one.is_disjoint(&other)
}

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// The time in which a certificate in PEM is valid.
pub(crate) fn validity(cert: &str) -> Option<Validity> {
    validity_of(&CertificateDer::from_pem_slice(cert.as_bytes()).ok()?)
}

/// The time in which a certificate in DER is valid.
pub(crate) fn validity_of(der: &[u8]) -> Option<Validity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let at = |seconds| Timestamp::from_second(seconds).ok();
    let validity = certificate.validity();
    Some(Validity { from: at(validity.not_before.timestamp())?, until: at(validity.not_after.timestamp())? })
}

fn params(common_name: &str, organization: Option<&str>, now: OffsetDateTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name = name;
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + life;
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    #[test]
    fn a_client_is_signed_by_its_ca() {
        let ca = new_ca("demo", NOW).unwrap();
        check_ca(&ca).unwrap();
        let client = new_client(&ca, Client::ApiServer, NOW).unwrap();
        let (_, ca_pem) = x509_parser::pem::parse_x509_pem(ca.cert.as_bytes()).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(client.cert.as_bytes()).unwrap();
        let (ca, leaf) = (ca_pem.parse_x509().unwrap(), pem.parse_x509().unwrap());
        assert!(ca.is_ca());
        assert_eq!(leaf.issuer(), ca.subject());
        assert_eq!(leaf.subject().to_string(), "CN=kube-apiserver-etcd-client, O=system:masters");
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(leaf.validity().not_after.timestamp(), 730 * 86_400);
    }

    #[test]
    fn what_prometheus_gets_has_no_rights_elsewhere_and_a_short_life() {
        let ca = new_ca("demo", NOW).unwrap();
        let client = new_client(&ca, Client::Metrics, NOW).unwrap();
        assert!(is_signed_by(&client.cert, &ca.cert));
        let (_, pem) = x509_parser::pem::parse_x509_pem(client.cert.as_bytes()).unwrap();
        let leaf = pem.parse_x509().unwrap();
        assert_eq!(leaf.subject().to_string(), "CN=etcd-metrics-client");
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(leaf.validity().not_after.timestamp(), 90 * 86_400);
    }

    #[test]
    fn cas_are_told_apart_by_their_keys() {
        let (ca, other) = (new_ca("demo", NOW).unwrap().cert, new_ca("demo", NOW).unwrap().cert);
        assert!(is_another_ca(&ca, &other));
        assert!(!is_another_ca(&ca, &ca));
        assert!(!is_another_ca(&ca, &format!("{other}{ca}")), "one that is being exchanged");
        assert!(!is_another_ca(&ca, "nothing that can be read"));
    }

    #[test]
    fn a_broken_ca_is_told_in_words() {
        let (ca, other) = (new_ca("demo", NOW).unwrap(), new_ca("demo", NOW).unwrap());
        let mixed = CertAndKey { cert: ca.cert.clone(), key: other.key };
        assert_eq!(check_ca(&mixed).unwrap_err(), "tls.key does not belong to tls.crt");
        let no_key = CertAndKey { cert: ca.cert.clone(), key: "nonsense".to_owned() };
        assert!(check_ca(&no_key).unwrap_err().starts_with("tls.key"));
        let no_cert = CertAndKey { cert: "nonsense".to_owned(), key: ca.key.clone() };
        assert!(check_ca(&no_cert).unwrap_err().starts_with("tls.crt"));
        let leaf = new_client(&ca, Client::Controller, NOW).unwrap();
        assert!(check_ca(&leaf).unwrap_err().contains("CA:TRUE"));
    }

    #[test]
    fn a_certificate_of_another_ca_is_told_from_ours() {
        let (ca, other) = (new_ca("demo", NOW).unwrap(), new_ca("demo", NOW).unwrap());
        let client = new_client(&ca, Client::ApiServer, NOW).unwrap();
        assert!(is_signed_by(&client.cert, &ca.cert));
        assert!(!is_signed_by(&client.cert, &other.cert), "the names are the same, the keys are not");
        assert!(is_signed_by(&client.cert, &format!("{}{}", other.cert, ca.cert)));
        assert!(!is_signed_by("nonsense", &ca.cert));
    }

    #[test]
    fn a_ca_that_certificates_cannot_name_as_their_issuer_is_refused() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../etcdadm/src/pki/testdata/refused");
        for name in ["twice", "together"] {
            let read = |extension: &str| std::fs::read_to_string(folder.join(format!("{name}.{extension}"))).unwrap();
            let error = check_ca(&CertAndKey { cert: read("crt"), key: read("key") }).unwrap_err();
            assert!(error.starts_with("the subject of tls.crt has an attribute twice"), "{name}: {error}");
        }
    }

    /// CAs as OpenSSL, kubeadm and cfssl have written them over the years.
    #[test]
    fn a_ca_of_any_usual_kind_signs() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../etcdadm/src/pki/testdata");
        let mut kinds = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "crt") {
                let read = |extension: &str| std::fs::read_to_string(path.with_extension(extension)).unwrap();
                let ca = CertAndKey { cert: read("crt"), key: read("key") };
                check_ca(&ca).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let client = new_client(&ca, Client::ApiServer, NOW).unwrap();
                let (_, ca_pem) = x509_parser::pem::parse_x509_pem(ca.cert.as_bytes()).unwrap();
                let (_, pem) = x509_parser::pem::parse_x509_pem(client.cert.as_bytes()).unwrap();
                let (authority, leaf) = (ca_pem.parse_x509().unwrap(), pem.parse_x509().unwrap());
                assert_eq!(leaf.issuer(), authority.subject());
                assert!(is_signed_by(&client.cert, &ca.cert), "{}", path.display());
                kinds += 1;
            }
        }
        assert!(kinds >= 6, "{kinds}");
    }
}
