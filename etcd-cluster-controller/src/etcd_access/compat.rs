//! The members as the reconcile asks them itself, until it reads what the prober knows.

use super::{Client, Expected};
use crate::observation::{Member, Report};
use crate::pki::CertAndKey;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use time::OffsetDateTime;

/// The CA's fingerprint, when the access was made, and the access.
type Entry = ([u8; 32], OffsetDateTime, Arc<Access>);

/// The connections to every cluster's members.
#[derive(Default)]
pub(crate) struct Accesses(Mutex<HashMap<String, Entry>>);

impl Accesses {
    /// Access to the members of the EtcdCluster `uid`, which trust `ca`. Made anew when the CA has changed.
    pub(crate) fn get(&self, uid: &str, ca: &CertAndKey, now: OffsetDateTime) -> Result<Arc<Access>, String> {
        let fingerprint: [u8; 32] = Sha256::new().chain_update(&ca.cert).chain_update(&ca.key).finalize().into();
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, made, access)) = entries.get(uid)
            && *known == fingerprint
            && now - *made < time::Duration::days(30)
        {
            return Ok(access.clone());
        }
        let access = Arc::new(Access(Client::new(ca, now)?));
        entries.insert(uid.to_owned(), (fingerprint, now, access.clone()));
        Ok(access)
    }

    /// Closes the connections to a cluster that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

/// Access to the members of one cluster.
pub(crate) struct Access(Client);

impl Access {
    pub(crate) async fn check(&self, client_url: &str) -> Result<Report, String> {
        let report = self.0.probe(client_url, Expected::default()).await.map_err(|fault| fault.to_string())?;
        if let Some(fault) = report.fault() {
            return Err(fault.to_string());
        }
        Ok(Report {
            member_id: report.member_id,
            cluster_id: report.cluster_id,
            leader: report.leader,
            version: report.version,
            database_size: report.database_size,
        })
    }

    pub(crate) async fn members(&self, client_url: &str) -> Result<(u64, BTreeMap<u64, Member>), String> {
        self.0.members(client_url).await.map_err(|fault| fault.to_string())
    }
}
