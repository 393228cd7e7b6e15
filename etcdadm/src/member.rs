//! What this machine remembers about its membership, in `member.json`.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::paths::Paths;

/// The member that this machine is. The IDs are hexadecimal, as etcdctl shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberRecord {
    /// The cluster's ID.
    #[serde(rename = "clusterID", with = "hex")]
    pub cluster_id: u64,
    /// The member's ID.
    #[serde(rename = "memberID", with = "hex")]
    pub member_id: u64,
    /// The member's name.
    pub name: String,
    /// The URL by which the other members know it.
    #[serde(rename = "peerURL")]
    pub peer_url: String,
    /// Of a member that was disowned: the cluster has confirmed that this machine has taken it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_out: bool,
}

impl MemberRecord {
    /// What is recorded of a member.
    pub fn of(cluster_id: u64, member_id: u64, name: String, peer_url: String) -> Self {
        Self { cluster_id, member_id, name, peer_url, taken_out: false }
    }

    /// Reads the record; `None` if there is none.
    ///
    /// # Errors
    /// When there is one that cannot be read.
    pub fn load(paths: &Paths) -> Result<Option<Self>> {
        let path = paths.member_record();
        let Some(text) = files::read(&path)? else { return Ok(None) };
        let record = serde_json::from_slice(&text);
        record.map(Some).with_context(|| format!("{} is damaged; correct it or remove it", path.display()))
    }

    /// What is recorded of a learner whose data is gone and that this machine is about to take out of the cluster: no
    /// cluster, as it is to be a member no longer. Its ID stays, since until it is out it must not start again.
    pub fn disowned(member_id: u64, name: String, peer_url: String) -> Self {
        Self { cluster_id: 0, member_id, name, peer_url, taken_out: false }
    }

    /// The same once the cluster has said yes to that: the machine may join again.
    #[must_use]
    pub fn taken_out(self) -> Self {
        Self { taken_out: true, ..self }
    }

    /// The member was about to be taken out by this machine, and whether that has done it is not known: the cluster
    /// says yes to one of two removals.
    pub fn is_in_doubt(&self) -> bool {
        self.cluster_id == 0 && !self.taken_out
    }

    /// Writes the record if it differs from what is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store(&self, paths: &Paths) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        files::write(&paths.member_record(), &text, 0o644)?;
        Ok(())
    }
}

mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{id:x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map_err(|_| D::Error::custom(format!("{text:?} is not a hexadecimal ID")))
    }
}
