//! What a member serves by gRPC. Requests that change the membership come this way.

use super::answers;
use super::ensemble::{Ensemble, Refusal};
use etcd_client::proto::{PbMemberListResponse, PbMemberRemoveResponse, PbMoveLeaderResponse};
use prost::Message;

/// The content type of gRPC.
pub(super) const CONTENT_TYPE: &str = "application/grpc";
const MALFORMED: Refusal = Refusal(13, "the request is malformed");
const UNIMPLEMENTED: Refusal = Refusal(12, "a simulated member does not do this");
/// The length of a message's prefix: whether it is compressed in one byte, and its length in four.
const PREFIX: usize = 5;

/// `MemberRemoveRequest` and `MoveLeaderRequest`: both name a member.
#[derive(Clone, PartialEq, Message)]
struct OfMember {
    #[prost(uint64, tag = "1")]
    id: u64,
}

/// `MemberListRequest`.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(bool, tag = "1")]
    linearizable: bool,
}

/// Answers a call of a method such as `/etcdserverpb.KV/Range`, with a framed message.
pub(super) fn answer(ensemble: &mut Ensemble, id: u64, method: &str, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let message = body.get(PREFIX..).ok_or(MALFORMED)?;
    match method {
        "/etcdserverpb.Maintenance/Status" => Ok(framed(&answers::status(ensemble, id))),
        "/etcdserverpb.KV/Range" => answers::range(ensemble, id).map(|answer| framed(&answer)),
        "/etcdserverpb.Cluster/MemberList" => {
            let asked: List = read(message)?;
            let answer: PbMemberListResponse = answers::list(ensemble, id, asked.linearizable)?;
            Ok(framed(&answer))
        }
        "/etcdserverpb.Cluster/MemberRemove" => {
            let asked: OfMember = read(message)?;
            let header = Some(answers::header(ensemble, id));
            ensemble.remove(asked.id)?;
            Ok(framed(&PbMemberRemoveResponse { header, members: answers::members(ensemble) }))
        }
        "/etcdserverpb.Maintenance/MoveLeader" => {
            let asked: OfMember = read(message)?;
            ensemble.move_leader(id, asked.id)?;
            Ok(framed(&PbMoveLeaderResponse { header: Some(answers::header(ensemble, id)) }))
        }
        _ => Err(UNIMPLEMENTED),
    }
}

fn read<T: Message + Default>(message: &[u8]) -> Result<T, Refusal> {
    T::decode(message).map_err(|_| MALFORMED)
}

fn framed(message: &impl Message) -> Vec<u8> {
    let encoded = message.encode_to_vec();
    let length = u32::try_from(encoded.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), &encoded].concat()
}
