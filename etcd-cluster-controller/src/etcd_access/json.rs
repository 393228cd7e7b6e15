//! What etcd's JSON gateway answers.

use crate::observation::Member;
use crate::observation::probe::Alarm;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    cluster_id: String,
    member_id: String,
    raft_term: String,
}

/// Answer of `/v3/maintenance/status`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    header: Header,
    pub(super) version: String,
    db_size: String,
    db_size_quota: String,
    leader: String,
    pub(super) is_learner: bool,
    errors: Vec<String>,
}

impl Status {
    pub(super) fn member_id(&self) -> Result<u64, String> {
        required("member_id", &self.header.member_id)
    }

    pub(super) fn cluster_id(&self) -> Result<u64, String> {
        required("cluster_id", &self.header.cluster_id)
    }

    pub(super) fn leader(&self) -> Result<u64, String> {
        number(&self.leader)
    }

    pub(super) fn database_size(&self) -> Result<i64, String> {
        number(&self.db_size).map(|size| i64::try_from(size).unwrap_or(i64::MAX))
    }

    /// The quota. etcd reports it from 3.6 on.
    pub(super) fn database_quota(&self) -> Result<Option<i64>, String> {
        let quota = number(&self.db_size_quota)?;
        Ok((quota > 0).then(|| i64::try_from(quota).unwrap_or(i64::MAX)))
    }

    pub(super) fn raft_term(&self) -> Result<u64, String> {
        number(&self.header.raft_term)
    }

    /// The alarms. etcd lists them among the errors of its status, in protobuf's text form: `memberID:1 alarm:NOSPACE`.
    /// A request to `/v3/maintenance/alarm` would instead make every probe a proposal to raft.
    pub(super) fn alarms(&self) -> Vec<Alarm> {
        let alarm = |error: &String| {
            let field = |name: &str| error.split_whitespace().find_map(|word| word.strip_prefix(name));
            let member_id = field("memberID:").and_then(|id| id.parse().ok()).unwrap_or_default();
            Some(Alarm { member_id, kind: field("alarm:")?.to_owned() })
        };
        let mut alarms: Vec<Alarm> = self.errors.iter().filter_map(alarm).collect();
        alarms.sort();
        alarms
    }
}

/// Answer of `/v3/cluster/member/list`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MemberList {
    header: Header,
    members: Vec<ListedMember>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListedMember {
    #[serde(rename = "ID")]
    id: String,
    name: String,
    #[serde(rename = "peerURLs")]
    peer_urls: Vec<String>,
    #[serde(rename = "clientURLs")]
    client_urls: Vec<String>,
    is_learner: bool,
}

impl MemberList {
    /// Cluster ID, and members by ID.
    pub(super) fn read(self) -> Result<(u64, BTreeMap<u64, Member>), String> {
        let cluster_id = required("cluster_id", &self.header.cluster_id)?;
        let members = self.members.into_iter().map(|member| {
            let entry = Member {
                name: member.name,
                peer_urls: member.peer_urls,
                client_urls: member.client_urls,
                learner: member.is_learner,
            };
            Ok((required("ID", &member.id)?, entry))
        });
        let members = members.collect::<Result<BTreeMap<_, _>, String>>()?;
        if members.is_empty() {
            return Err("the member list is empty".to_owned());
        }
        Ok((cluster_id, members))
    }
}

/// The answer of any path if the request failed.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    /// gRPC's code.
    pub(super) code: u32,
    pub(super) message: String,
}

/// Reads a 64-bit number: etcd's JSON has it as a string, and leaves it out if it is zero.
fn number(text: &str) -> Result<u64, String> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| format!("{text:?} is not a number")) }
}

fn required(name: &str, text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err(format!("{name} is missing")),
        id => Ok(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn list(value: Value) -> Result<(u64, BTreeMap<u64, Member>), String> {
        serde_json::from_value::<MemberList>(value).unwrap().read()
    }

    #[test]
    fn a_member_list_is_read() {
        // As etcd 3.6 answers.
        let (cluster, members) = list(json!({
            "header": {"cluster_id": "14841639068965178418", "member_id": "10276657743932975437", "raft_term": "2"},
            "members": [{"ID": "10276657743932975437", "name": "a", "peerURLs": ["https://10.0.0.1:2380"],
                         "clientURLs": ["https://10.0.0.1:2379"]},
                        {"ID": "1", "peerURLs": ["https://10.0.0.2:2380"], "isLearner": true}]
        }))
        .unwrap();
        assert_eq!(cluster, 14_841_639_068_965_178_418);
        assert!(!members[&10_276_657_743_932_975_437].learner && members[&1].learner);
        assert_eq!(members[&1].name, "");
    }

    #[test]
    fn a_list_without_members_or_ids_is_not_a_list() {
        assert!(list(json!({})).is_err());
        assert!(list(json!({"header": {"cluster_id": "1"}})).is_err());
        assert!(list(json!({"header": {"cluster_id": "1"}, "members": [{"name": "a"}]})).is_err());
        assert!(list(json!({"header": {"cluster_id": "x"}, "members": [{"ID": "1"}]})).is_err());
    }

    #[test]
    fn an_etcd_that_tells_no_quota_has_one_all_the_same() {
        let quota = |value: Value| serde_json::from_value::<Status>(value).unwrap().database_quota();
        assert_eq!(quota(json!({"dbSizeQuota": "2147483648"})), Ok(Some(2_147_483_648)));
        assert_eq!(quota(json!({})), Ok(None), "as before etcd 3.6");
    }

    #[test]
    fn alarms_are_told_from_other_errors() {
        let status: Status = serde_json::from_value(json!({"errors": [
            "etcdserver: no leader", "memberID:10276657743932975437 alarm:NOSPACE ", "alarm:CORRUPT"]}))
        .unwrap();
        let alarm = |member_id, kind: &str| Alarm { member_id, kind: kind.to_owned() };
        assert_eq!(status.alarms(), [alarm(0, "CORRUPT"), alarm(10_276_657_743_932_975_437, "NOSPACE")]);
    }
}
