//! The HTTP client of one cluster. It is made on first use, and again when the CA changes, when its certificate gets
//! old, or when the clock is set back.

use crate::etcd_access::Client;
use crate::observation::probe::OurFault;
use crate::pki::CertAndKey;
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use tokio::sync::Mutex;

/// The age at which a client certificate is replaced. It is valid for a year. Up to the fraction `JITTER` of the age is
/// left out at random, so that the clusters of a manager do not all make new certificates on the same day.
const AGE: Duration = Duration::days(30);
const JITTER: f64 = 1.0 / 3.0;

/// The client of one cluster.
#[derive(Default)]
pub(super) struct ClientCell(Mutex<Option<Made>>);

struct Made {
    ca: CertAndKey,
    at: OffsetDateTime,
    renew_at: OffsetDateTime,
    client: Arc<Client>,
}

impl ClientCell {
    /// The client for members that trust `ca`, or the earlier CA if that is `None`.
    pub(super) async fn get(&self, ca: Option<&CertAndKey>, now: OffsetDateTime) -> Result<Arc<Client>, OurFault> {
        // Only the probes of this cluster wait for each other here.
        let mut made = self.0.lock().await;
        let same_ca = |made: &&Made| ca.is_none_or(|ca| *ca == made.ca);
        let present = made.as_ref().filter(same_ca);
        // A client that was made before the clock was set back may have a certificate that is not valid yet.
        if let Some(present) = present.filter(|present| (present.at..present.renew_at).contains(&now)) {
            return Ok(present.client.clone());
        }
        let Some(ca) = ca.or(present.map(|present| &present.ca)).cloned() else {
            return Err(OurFault::ClientCertificate("the CA of the cluster has not been read".to_owned()));
        };
        let signing = ca.clone();
        let signed = tokio::task::spawn_blocking(move || Client::new(&signing, now)).await;
        match signed.map_err(|error| error.to_string()).and_then(|signed| signed) {
            Ok(client) => {
                let client = Arc::new(client);
                let renew_at = now + AGE * (1.0 - JITTER * rand::random::<f64>());
                *made = Some(Made { ca, at: now, renew_at, client: client.clone() });
                Ok(client)
            }
            // The old certificate is valid for some more months.
            Err(error) => present.map(|present| present.client.clone()).ok_or(OurFault::ClientCertificate(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::new_ca;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    #[tokio::test]
    async fn a_client_is_made_again_for_another_ca_or_when_it_is_old() {
        let (ca, other) = (new_ca("demo", NOW).unwrap(), new_ca("demo", NOW).unwrap());
        let cell = ClientCell::default();
        let missing = cell.get(None, NOW).await.unwrap_err();
        assert!(matches!(missing, OurFault::ClientCertificate(_)), "{missing}");
        let first = cell.get(Some(&ca), NOW).await.unwrap();
        let same = |client: &Arc<Client>| Arc::ptr_eq(&first, client);
        assert!(same(&cell.get(Some(&ca), NOW + Duration::days(19)).await.unwrap()));
        assert!(same(&cell.get(None, NOW + Duration::days(19)).await.unwrap()), "the CA cannot be read: go on");
        assert!(!same(&cell.get(Some(&ca), NOW + Duration::days(30)).await.unwrap()));
        let second = cell.get(Some(&other), NOW + Duration::days(30)).await.unwrap();
        let broken = CertAndKey { cert: other.cert.clone(), key: "nonsense".to_owned() };
        assert!(matches!(cell.get(Some(&broken), NOW).await, Err(OurFault::ClientCertificate(_))));
        assert!(Arc::ptr_eq(&second, &cell.get(Some(&other), NOW + Duration::days(30)).await.unwrap()));
        assert!(!Arc::ptr_eq(&second, &cell.get(Some(&other), NOW + Duration::days(29)).await.unwrap()), "set back");
    }

    #[tokio::test]
    async fn clients_made_together_are_not_renewed_together() {
        let ca = new_ca("demo", NOW).unwrap();
        let mut days = Vec::new();
        for _ in 0..20 {
            let cell = ClientCell::default();
            cell.get(Some(&ca), NOW).await.unwrap();
            let renew_at = cell.0.lock().await.as_ref().unwrap().renew_at;
            assert!((NOW + Duration::days(20)..=NOW + AGE).contains(&renew_at));
            days.push(renew_at.unix_timestamp() / 86_400);
        }
        days.sort_unstable();
        days.dedup();
        assert!(days.len() > 3, "{days:?}");
    }
}
