//! What a member serves over HTTP: the JSON gateway, and its health, version and metrics.

use super::ensemble::{Ensemble, Refusal};
use super::{VERSION, answers, metrics};
use etcd_client::proto::{PbMember, PbResponseHeader, PbStatusResponse};
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

/// Status, content type and body of an answer.
pub(super) type Answer = (StatusCode, &'static str, String);

const STATUS: &str = "/v3/maintenance/status";
const RANGE: &str = "/v3/kv/range";
const LIST: &str = "/v3/cluster/member/list";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
const NOT_FOUND: Refusal = Refusal(5, "Not Found");
const NOT_ALLOWED: Refusal = Refusal(12, "Method Not Allowed");

/// Answers a request.
pub(super) fn answer(ensemble: &Ensemble, id: u64, method: &Method, path: &str, body: &[u8]) -> Answer {
    match (method, path) {
        (&Method::GET, "/health") => health(ensemble),
        (&Method::GET, "/version") => {
            let version = json!({"etcdserver": VERSION, "etcdcluster": "3.6.0", "storage": "3.6.0"});
            (StatusCode::OK, JSON, version.to_string())
        }
        (&Method::GET, "/metrics") => (StatusCode::OK, METRICS, metrics::text(ensemble, id)),
        _ if path.starts_with("/v3/") => match called(ensemble, id, method, path, body) {
            Ok(value) => (StatusCode::OK, JSON, value.to_string()),
            Err(refusal) => refused(refusal),
        },
        _ => (StatusCode::NOT_FOUND, PLAIN, "404 page not found\n".to_owned()),
    }
}

fn health(ensemble: &Ensemble) -> Answer {
    let (status, health, reason) = match ensemble.leader() {
        Some(_) => (StatusCode::OK, "true", ""),
        None => (StatusCode::SERVICE_UNAVAILABLE, "false", "RAFT NO LEADER"),
    };
    (status, PLAIN, json!({"health": health, "reason": reason}).to_string())
}

fn called(ensemble: &Ensemble, id: u64, method: &Method, path: &str, body: &[u8]) -> Result<Value, Refusal> {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    match path {
        STATUS | RANGE | LIST if method != Method::POST => Err(NOT_ALLOWED),
        STATUS => Ok(status(&answers::status(ensemble, id))),
        RANGE => {
            let answered = answers::range(ensemble, id)?;
            Ok(json!({"header": header(answered.header.as_ref())}))
        }
        LIST => {
            let answered = answers::list(ensemble, id, asked["linearizable"] == true)?;
            let members: Vec<Value> = answered.members.iter().map(member).collect();
            Ok(json!({"header": header(answered.header.as_ref()), "members": members}))
        }
        _ => Err(NOT_FOUND),
    }
}

fn refused(Refusal(code, message): Refusal) -> Answer {
    let status = match code {
        5 => StatusCode::NOT_FOUND,
        9 => StatusCode::BAD_REQUEST,
        12 => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, JSON, json!({"code": code, "message": message}).to_string())
}

fn status(status: &PbStatusResponse) -> Value {
    object([
        ("header", header(status.header.as_ref())),
        ("version", json!(status.version)),
        ("dbSize", number(&status.db_size)),
        ("leader", number(&status.leader)),
        ("raftIndex", number(&status.raft_index)),
        ("raftTerm", number(&status.raft_term)),
        ("raftAppliedIndex", number(&status.raft_applied_index)),
        ("errors", json!(status.errors)),
        ("dbSizeInUse", number(&status.db_size_in_use)),
        ("isLearner", json!(status.is_learner)),
        ("storageVersion", json!(status.storage_version)),
        ("dbSizeQuota", number(&status.db_size_quota)),
        ("downgradeInfo", json!({})),
    ])
}

fn header(header: Option<&PbResponseHeader>) -> Value {
    let Some(header) = header else { return json!({}) };
    object([
        ("cluster_id", number(&header.cluster_id)),
        ("member_id", number(&header.member_id)),
        ("revision", number(&header.revision)),
        ("raft_term", number(&header.raft_term)),
    ])
}

fn member(member: &PbMember) -> Value {
    object([
        ("ID", number(&member.id)),
        ("name", json!(member.name)),
        ("peerURLs", json!(member.peer_ur_ls)),
        ("clientURLs", json!(member.client_ur_ls)),
        ("isLearner", json!(member.is_learner)),
    ])
}

/// An object as the gateway writes it: without fields that are zero, false or empty.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let empty = |value: &Value| [json!("0"), json!(""), json!([]), json!(false)].contains(value);
    let fields = fields.into_iter().filter(|(_, value)| !empty(value));
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// The gateway writes numbers of 64 bits as strings.
fn number(number: &impl ToString) -> Value {
    json!(number.to_string())
}
