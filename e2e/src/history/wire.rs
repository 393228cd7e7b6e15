//! Converts requests and answers between the form of etcd's suite and that of the client library.

use super::request::{Op, Range, Request, Txn, Value};
use super::response::{Done, Found, KeyValue, Nothing, OpResult, Response};
use etcd_client::{
    Client, Compare, CompareOp, DeleteResponse, Error, GetOptions, GetResponse, LeaseGrantOptions, PutOptions,
    ResponseHeader, TxnOp, TxnOpResponse,
};

/// How long a lease lasts, in seconds: longer than any history, so that only its client ends it.
const LEASE: i64 = 3600;

/// Sends a request.
pub(super) async fn send(client: &mut Client, request: &Request) -> Result<Response, Error> {
    match request {
        Request::Range { range } => read(client, range, false).await,
        Request::Txn { txn } => match alone(txn) {
            Some(Op::Put { put }) => {
                let options = PutOptions::new().with_lease(put.lease);
                let answer = client.put(put.key.as_str(), put.value.value.as_str(), Some(options)).await?;
                Ok(done(false, vec![OpResult::default()], answer.header()))
            }
            Some(Op::Delete { delete }) => {
                let answer = client.delete(delete.key.as_str(), None).await?;
                Ok(done(false, vec![deleted(&answer)], answer.header()))
            }
            _ => transact(client, txn).await,
        },
        Request::LeaseGrant { lease } => {
            let answer = client.lease_grant(LEASE, Some(LeaseGrantOptions::new().with_id(lease.id))).await?;
            Ok(Response::LeaseGrant { granted: Nothing {}, revision: revision(answer.header()) })
        }
        Request::LeaseRevoke { lease } => {
            let answer = client.lease_revoke(lease.id).await?;
            Ok(Response::LeaseRevoke { revoked: Nothing {}, revision: revision(answer.header()) })
        }
    }
}

/// Reads keys: linearizably, or from the member's own copy.
pub(super) async fn read(client: &mut Client, range: &Range, serializable: bool) -> Result<Response, Error> {
    let mut options = options(range);
    if serializable {
        options = options.with_serializable();
    }
    let answer = client.get(range.start.as_str(), Some(options)).await?;
    Ok(Response::Range { revision: revision(answer.header()), range: found(&answer) })
}

/// The operation of a transaction that has only one, and no conditions.
fn alone(txn: &Txn) -> Option<&Op> {
    match txn.operations_on_success.as_slice() {
        [only] if txn.conditions.is_empty() && txn.operations_on_failure.is_empty() => Some(only),
        _ => None,
    }
}

async fn transact(client: &mut Client, txn: &Txn) -> Result<Response, Error> {
    let holds = txn
        .conditions
        .iter()
        .map(|condition| Compare::mod_revision(condition.key.as_str(), CompareOp::Equal, condition.expected_revision));
    let operations = |operations: &[Op]| operations.iter().map(operation).collect::<Vec<_>>();
    let request = etcd_client::Txn::new()
        .when(holds.collect::<Vec<_>>())
        .and_then(operations(&txn.operations_on_success))
        .or_else(operations(&txn.operations_on_failure));
    let answer = client.txn(request).await?;
    let results = answer.op_responses().iter().map(result).collect();
    Ok(done(!answer.succeeded(), results, answer.header()))
}

fn operation(operation: &Op) -> TxnOp {
    match operation {
        Op::Range { range } => TxnOp::get(range.start.as_str(), Some(options(range))),
        Op::Put { put } => {
            let options = PutOptions::new().with_lease(put.lease);
            TxnOp::put(put.key.as_str(), put.value.value.as_str(), Some(options))
        }
        Op::Delete { delete } => TxnOp::delete(delete.key.as_str(), None),
    }
}

fn options(range: &Range) -> GetOptions {
    let options = GetOptions::new().with_limit(range.limit).with_revision(range.revision);
    if range.end.is_empty() { options } else { options.with_range(range.end.as_str()) }
}

fn result(response: &TxnOpResponse) -> OpResult {
    match response {
        TxnOpResponse::Get(answer) => {
            let Found { keys, count } = found(answer);
            OpResult { keys: Some(keys), count, deleted: 0 }
        }
        TxnOpResponse::Delete(answer) => deleted(answer),
        TxnOpResponse::Put(_) | TxnOpResponse::Txn(_) => OpResult::default(),
    }
}

fn deleted(answer: &DeleteResponse) -> OpResult {
    OpResult { deleted: answer.deleted(), ..OpResult::default() }
}

fn done(failure: bool, results: Vec<OpResult>, header: Option<&ResponseHeader>) -> Response {
    Response::Txn { txn: Done { failure, results }, revision: revision(header) }
}

fn found(answer: &GetResponse) -> Found {
    Found { keys: answer.kvs().iter().map(key_value).collect(), count: answer.count() }
}

pub(super) fn key_value(found: &etcd_client::KeyValue) -> KeyValue {
    KeyValue {
        key: text(found.key()),
        value: Value { value: text(found.value()) },
        mod_revision: found.mod_revision(),
        version: found.version(),
    }
}

/// The store's revision in an answer; 0, which no store has, if the answer has no header.
pub(super) fn revision(header: Option<&ResponseHeader>) -> i64 {
    header.map_or(0, ResponseHeader::revision)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
