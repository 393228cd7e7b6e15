//! What this machine remembers about its membership, in `member.json`.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::paths::Paths;

/// The member on this machine. The IDs are hexadecimal, as etcdctl shows them.
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
    /// For a disowned member: the cluster has confirmed to this machine that it removed the member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removal_confirmed: bool,
}

impl MemberRecord {
    /// The record of a member.
    pub fn of(cluster_id: u64, member_id: u64, name: String, peer_url: String) -> Self {
        Self { cluster_id, member_id, name, peer_url, removal_confirmed: false }
    }

    /// Reads the record; `None` if it does not exist.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub fn load(paths: &Paths) -> Result<Option<Self>> {
        let path = paths.member_record();
        let Some(text) = files::read(&path)? else { return Ok(None) };
        let record = serde_json::from_slice(&text);
        record.map(Some).with_context(|| format!("{} is damaged; correct it or remove it", path.display()))
    }

    /// The record of a learner that has lost its data, before this machine removes it. Its cluster ID is 0: it belongs
    /// to no cluster any more. Its member ID stays: until the learner is removed, it must not start again.
    pub fn disowned(member_id: u64, name: String, peer_url: String) -> Self {
        Self::of(0, member_id, name, peer_url)
    }

    /// The same once the cluster has confirmed the removal: the machine may join again.
    #[must_use]
    pub fn removal_confirmed(self) -> Self {
        Self { removal_confirmed: true, ..self }
    }

    /// Whether this machine was about to remove the member, and does not know who removed it: of two removals at the
    /// same time, the cluster confirms one.
    pub fn is_in_doubt(&self) -> bool {
        self.cluster_id == 0 && !self.removal_confirmed
    }

    /// Writes the record if it differs from the existing one.
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
