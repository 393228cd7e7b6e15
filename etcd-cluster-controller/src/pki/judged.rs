//! The result of checking a CA, cached for each version of its Secrets.

use super::{CertAndKey, Validity, check_ca, is_signed_by, validity};
use crate::build;
use controller_support::TtlCache;
use controller_support::external::secret_text;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use std::sync::Arc;
use std::time::Duration;

/// How long the result for a CA is cached. Its Secrets may be gone by then.
const JUDGED_TTL: Duration = Duration::from_secs(3600);

/// The results of checking CAs. To parse a CA, derive its key and verify a signature costs more than the rest of a
/// reconcile, and the result changes only with the Secrets.
pub(crate) struct JudgedCas(TtlCache<[Option<String>; 4], Arc<Judged>>);

impl Default for JudgedCas {
    fn default() -> Self {
        Self(TtlCache::new(JUDGED_TTL))
    }
}

/// The result of checking one CA.
pub(crate) struct Judged {
    /// The CA, or what is wrong with it.
    pub(crate) ca: Result<CertAndKey, String>,
    /// When its certificate expires.
    pub(crate) ca_expires: Option<Timestamp>,
    /// The client certificate that it should have signed.
    pub(crate) client: ClientCertificate,
}

/// A client certificate that a CA should have signed: that of the API servers or that of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCertificate {
    /// There is none.
    None,
    /// Another CA has signed it.
    OfAnotherCa,
    /// The CA has signed it, unless the CA cannot be used. It is valid in this time, if it says when.
    Good(Option<Validity>),
}

impl ClientCertificate {
    /// When the certificate is valid, if the CA has signed it and it says when.
    pub(crate) fn validity(self) -> Option<Validity> {
        match self {
            Self::Good(validity) => validity,
            Self::None | Self::OfAnotherCa => None,
        }
    }
}

impl JudgedCas {
    /// Checks a CA, and the certificate that it should have signed, unless the result for these versions of the Secrets
    /// is cached.
    pub(crate) fn judge(&self, ca: &DynamicObject, client: Option<&DynamicObject>) -> Arc<Judged> {
        let version = |object: Option<&DynamicObject>| {
            [object.and_then(DynamicObject::uid), object.and_then(DynamicObject::resource_version)]
        };
        let ([ca_uid, ca_version], [client_uid, client_version]) = (version(Some(ca)), version(client));
        let key = [ca_uid, ca_version, client_uid, client_version];
        if let Some(known) = self.0.get(&key) {
            return known;
        }
        let judged = Arc::new(judge(ca, client));
        self.0.insert(key, judged.clone());
        judged
    }
}

fn judge(ca: &DynamicObject, client: Option<&DynamicObject>) -> Judged {
    let ca = read_ca(ca);
    let cert = client.and_then(|secret| {
        let [cert, key] = [build::CERT, build::KEY].map(|key| secret_text(secret, key));
        key.and(cert)
    });
    let client = match (&ca, cert) {
        (Ok(ca), Some(cert)) if !is_signed_by(&cert, &ca.cert) => ClientCertificate::OfAnotherCa,
        (_, Some(cert)) => ClientCertificate::Good(validity(&cert)),
        (_, None) => ClientCertificate::None,
    };
    let ca_expires = ca.as_ref().ok().and_then(|ca| validity(&ca.cert)).map(|validity| validity.until);
    Judged { ca, ca_expires, client }
}

/// Reads and checks a CA Secret. `Err`: what is wrong, in words for its owner.
pub(crate) fn read_ca(secret: &DynamicObject) -> Result<CertAndKey, String> {
    let text = |key: &str| secret_text(secret, key).ok_or_else(|| format!("has no key {key}"));
    let ca = CertAndKey { cert: text(build::CERT)?, key: text(build::KEY)? };
    check_ca(&ca).map(|()| ca)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Client, new_ca, new_client};
    use k8s_openapi::ByteString;
    use serde_json::json;
    use std::collections::BTreeMap;
    use time::OffsetDateTime;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn secret(version: &str, content: &CertAndKey) -> DynamicObject {
        let content = BTreeMap::from([(build::CERT, &content.cert), (build::KEY, &content.key)]);
        let data = content.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
        let data: BTreeMap<String, ByteString> = data.collect();
        serde_json::from_value(json!({"metadata": {"uid": "u", "resourceVersion": version}, "data": data})).unwrap()
    }

    #[test]
    fn a_ca_is_judged_once_for_each_version_of_its_secrets() {
        let (ca, other) = (new_ca("demo", NOW).unwrap(), new_ca("demo", NOW).unwrap());
        let client = new_client(&ca, Client::ApiServer, NOW).unwrap();
        let (known, staged) = (JudgedCas::default(), secret("7", &client));
        let first = known.judge(&secret("1", &ca), Some(&staged));
        assert!(first.ca.is_ok());
        let [from, until] = [-1, 730].map(|day| Timestamp::from_second(day * 86_400).unwrap());
        assert_eq!(first.client, ClientCertificate::Good(Some(Validity { from, until })));
        assert_eq!(first.ca_expires, Timestamp::from_second(3650 * 86_400).ok());
        assert!(Arc::ptr_eq(&first, &known.judge(&secret("1", &ca), Some(&staged))), "nothing is looked at again");
        assert_eq!(known.judge(&secret("2", &other), Some(&staged)).client, ClientCertificate::OfAnotherCa);
        assert_eq!(known.judge(&secret("1", &ca), None).client, ClientCertificate::None);
        assert_eq!(known.judge(&secret("1", &ca), Some(&secret("8", &other))).client, ClientCertificate::OfAnotherCa);
        let mixed = CertAndKey { cert: ca.cert, key: other.key };
        assert!(known.judge(&secret("3", &mixed), None).ca.is_err());
    }
}
