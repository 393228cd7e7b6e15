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
}

impl MemberRecord {
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

    /// What is recorded of a member whose data is gone and that is about to be taken out of the cluster: no cluster, so
    /// that the machine may join again. Its ID stays, since until it is out it must not start again.
    pub fn disowned(member_id: u64, name: String, peer_url: String) -> Self {
        Self { cluster_id: 0, member_id, name, peer_url }
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
