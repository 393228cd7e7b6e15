//! A member's answers, both by gRPC and through the JSON gateway.

use super::VERSION;
use super::ensemble::{Ensemble, Refusal};
use api::names;
use etcd_client::proto::{
    PbDowngradeInfo, PbMember, PbMemberListResponse, PbRangeResponse, PbResponseHeader, PbStatusResponse,
};

const LEARNER: Refusal = Refusal(9, "etcdserver: rpc not supported for learner");
/// etcd answers this after seven seconds, a simulated member at once.
const TIMED_OUT: Refusal = Refusal(14, "etcdserver: request timed out");
/// The size of an empty database, and the quota, in bytes.
const DATABASE: i64 = 20_480;
const QUOTA: i64 = 2 * 1024 * 1024 * 1024;

/// A member's status.
pub(super) fn status(ensemble: &Ensemble, id: u64) -> PbStatusResponse {
    let leader = ensemble.leader();
    PbStatusResponse {
        header: Some(header(ensemble, id)),
        version: VERSION.to_owned(),
        db_size: DATABASE,
        leader: leader.unwrap_or_default(),
        raft_index: ensemble.index(),
        raft_term: ensemble.term(),
        raft_applied_index: ensemble.index(),
        errors: if leader.is_none() { vec!["etcdserver: no leader".to_owned()] } else { Vec::new() },
        db_size_in_use: DATABASE,
        is_learner: is_learner(ensemble, id),
        storage_version: "3.6.0".to_owned(),
        db_size_quota: QUOTA,
        downgrade_info: Some(PbDowngradeInfo::default()),
    }
}

/// The member list.
pub(super) fn list(ensemble: &Ensemble, id: u64, linearizable: bool) -> Result<PbMemberListResponse, Refusal> {
    may_read(ensemble, id, linearizable)?;
    let header = Some(PbResponseHeader { revision: 0, ..header(ensemble, id) });
    Ok(PbMemberListResponse { header, members: members(ensemble) })
}

/// All members, in the form of a member list.
pub(super) fn members(ensemble: &Ensemble) -> Vec<PbMember> {
    let url = |address, port| vec![format!("https://{address}:{port}")];
    let entry = |(id, member): (&u64, &super::ensemble::Member)| PbMember {
        id: *id,
        name: member.name.clone(),
        peer_ur_ls: url(member.address, names::PEER_PORT),
        client_ur_ls: url(member.address, names::CLIENT_PORT),
        is_learner: member.learner,
    };
    ensemble.members().iter().map(entry).collect()
}

/// A linearizable read. The database has no keys.
pub(super) fn range(ensemble: &Ensemble, id: u64) -> Result<PbRangeResponse, Refusal> {
    may_read(ensemble, id, true)?;
    Ok(PbRangeResponse { header: Some(header(ensemble, id)), ..PbRangeResponse::default() })
}

pub(super) fn header(ensemble: &Ensemble, id: u64) -> PbResponseHeader {
    let (cluster_id, raft_term) = (ensemble.cluster_id(), ensemble.term());
    PbResponseHeader { cluster_id, member_id: id, revision: 1, raft_term }
}

/// A learner refuses lists and reads, and without a leader nothing is linearizable.
fn may_read(ensemble: &Ensemble, id: u64, linearizable: bool) -> Result<(), Refusal> {
    match ensemble.leader() {
        _ if is_learner(ensemble, id) => Err(LEARNER),
        None if linearizable => Err(TIMED_OUT),
        _ => Ok(()),
    }
}

fn is_learner(ensemble: &Ensemble, id: u64) -> bool {
    ensemble.members().get(&id).is_some_and(|member| member.learner)
}
