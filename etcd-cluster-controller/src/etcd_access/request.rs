//! The requests to a member.

use super::Client;
use super::client::CONNECT_TIMEOUT;
use super::fault::{Fault, classify, late};
use super::json::{Failure, MemberList, Status};
use crate::observation::Member;
use crate::observation::probe::{MemberFault, Report};
use crate::pki::validity_of;
use reqwest::tls::TlsInfo;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Limit for a whole probe. A member that takes longer to answer is not healthy.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes that a small answer may have.
const SMALL: usize = 64 * 1024;
/// Most bytes that a member list may have, or all metrics.
const LARGE: usize = 1024 * 1024;

/// How long a member may be without a leader before that is a fault. An election takes one to two seconds.
const ELECTION: Duration = Duration::from_secs(3);

const STATUS_PATH: &str = "/v3/maintenance/status";
const RANGE_PATH: &str = "/v3/kv/range";
const LIST_PATH: &str = "/v3/cluster/member/list";
const METRICS_PATH: &str = "/metrics";
/// Codes of gRPC.
const PERMISSION_DENIED: u32 = 7;
const UNAUTHENTICATED: u32 = 16;

/// The member that is expected to answer. `None`: any.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) cluster_id: Option<u64>,
    pub(crate) member_id: Option<u64>,
}

impl Expected {
    fn compare(self, cluster_id: u64, member_id: u64) -> Result<(), MemberFault> {
        match self {
            Self { cluster_id: Some(expected), .. } if expected != cluster_id => {
                Err(MemberFault::OtherCluster { expected, answered: cluster_id })
            }
            Self { member_id: Some(expected), .. } if expected != member_id => {
                Err(MemberFault::OtherMember { expected, answered: member_id })
            }
            _ => Ok(()),
        }
    }
}

/// A request to a member.
struct Request<'a> {
    client_url: &'a str,
    path: &'static str,
    /// The body to post. `None`: the path is read with GET.
    body: Option<Value>,
    /// Most bytes that the answer may have.
    most: usize,
}

impl Client {
    /// Asks a member for its status, and a voter for a linearizable read as well.
    ///
    /// It does not use `/health`: that fails at every member as long as any member has raised an alarm.
    pub(crate) async fn probe(&self, client_url: &str, expected: Expected) -> Result<Report, Fault> {
        let begun = Instant::now();
        loop {
            let report = self.look(client_url, expected, begun + TIMEOUT).await?;
            // While the members elect a leader, this member is not at fault.
            if !matches!(report.linearizable, Err(MemberFault::NoLeader)) || begun.elapsed() >= ELECTION {
                return Ok(report);
            }
            sleep(ELECTION / 6).await;
        }
    }

    async fn look(&self, client_url: &str, expected: Expected, deadline: Instant) -> Result<Report, Fault> {
        let request = Request { client_url, path: STATUS_PATH, body: Some(json!({})), most: SMALL };
        let answer = self.send(&request, deadline).await?;
        let status: Status = answer.read(STATUS_PATH)?;
        let garbled = |what| MemberFault::Garbled(format!("{STATUS_PATH}: {what}"));
        let (member_id, cluster_id) = (status.member_id().map_err(garbled)?, status.cluster_id().map_err(garbled)?);
        let leader = status.leader().map_err(garbled)?;
        let linearizable = match leader {
            _ if status.is_learner => Ok(()),
            // A read would wait for 7 s and then time out.
            0 => Err(MemberFault::NoLeader),
            _ => match self.read(client_url, deadline).await {
                Ok(()) => Ok(()),
                Err(Fault::Theirs(fault)) => Err(fault),
                Err(not_theirs) => return Err(not_theirs),
            },
        };
        Ok(Report {
            member_id,
            cluster_id,
            leader,
            learner: status.is_learner,
            database_size: status.database_size().map_err(garbled)?,
            database_quota: status.database_quota().map_err(garbled)?,
            raft_term: status.raft_term().map_err(garbled)?,
            certificate_expires: answer.certificate.and_then(|der| Some(validity_of(&der)?.until)),
            alarms: status.alarms(),
            version: status.version,
            identity: expected.compare(cluster_id, member_id),
            linearizable,
        })
    }

    /// A linearizable read of a key that need not exist.
    async fn read(&self, client_url: &str, deadline: Instant) -> Result<(), Fault> {
        // The key is "health" in base64, as in etcd's own check.
        let body = Some(json!({"key": "aGVhbHRo", "limit": "1", "count_only": true}));
        let answer = self.send(&Request { client_url, path: RANGE_PATH, body, most: SMALL }, deadline).await?;
        if answer.is_success() {
            return Ok(());
        }
        match failure(RANGE_PATH, answer.status, &answer.body) {
            // Permission is checked after the quorum has answered.
            (PERMISSION_DENIED | UNAUTHENTICATED, _) => Ok(()),
            (_, MemberFault::Http { body, .. }) if body.contains("user name is empty") => Ok(()),
            (_, fault) => Err(fault.into()),
        }
    }

    /// Reads the member list with a linearizable read: the cluster ID, and the members by ID. A learner refuses this
    /// request.
    pub(crate) async fn members(&self, client_url: &str) -> Result<(u64, BTreeMap<u64, Member>), Fault> {
        let deadline = Instant::now() + TIMEOUT;
        let request = Request { client_url, path: LIST_PATH, body: Some(json!({"linearizable": true})), most: LARGE };
        let list: MemberList = self.send(&request, deadline).await?.read(LIST_PATH)?;
        Ok(list.read().map_err(|what| MemberFault::Garbled(format!("{LIST_PATH}: {what}")))?)
    }

    /// Reads what a member has counted about each other member since it started. The leader is connected to all of
    /// them.
    pub(crate) async fn peer_counters(&self, client_url: &str) -> Result<PeerCounters, Fault> {
        let request = Request { client_url, path: METRICS_PATH, body: None, most: LARGE };
        let answer = self.send(&request, Instant::now() + TIMEOUT).await?;
        Ok(PeerCounters::read(&String::from_utf8_lossy(answer.content(METRICS_PATH)?)))
    }

    async fn send(&self, request: &Request<'_>, deadline: Instant) -> Result<Answer, Fault> {
        let twice = async {
            match self.exchange(request).await {
                // The member may have closed a connection that was kept from the last probe.
                Err(Fault::Theirs(MemberFault::Closed(_))) => self.exchange(request).await,
                other => other,
            }
        };
        let in_time = timeout_at(deadline, twice).await;
        in_time.unwrap_or_else(|_| Err(late(TIMEOUT, deadline.elapsed())))
    }

    async fn exchange(&self, request: &Request<'_>) -> Result<Answer, Fault> {
        let Request { client_url, path, body, most } = request;
        let begun = Instant::now();
        let classified = |error: reqwest::Error| {
            classify(&error).unwrap_or_else(|| late(CONNECT_TIMEOUT, begun.elapsed().saturating_sub(CONNECT_TIMEOUT)))
        };
        let url = format!("{client_url}{path}");
        let request = body.as_ref().map_or_else(|| self.http.get(&url), |body| self.http.post(&url).json(body));
        let mut answer = request.send().await.map_err(classified)?;
        let mut answered = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(classified)? {
            if answered.len() + chunk.len() > *most {
                return Err(MemberFault::Garbled(format!("{path}: more than {} KiB", most / 1024)).into());
            }
            answered.extend_from_slice(&chunk);
        }
        let tls: Option<&TlsInfo> = answer.extensions().get();
        let certificate = tls.and_then(TlsInfo::peer_certificate).map(<[u8]>::to_vec);
        Ok(Answer { status: answer.status().as_u16(), body: answered, certificate })
    }
}

/// The answer of a member.
struct Answer {
    status: u16,
    body: Vec<u8>,
    /// The member's certificate, as DER.
    certificate: Option<Vec<u8>>,
}

impl Answer {
    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body, unless the status is not a success.
    fn content(&self, path: &'static str) -> Result<&[u8], Fault> {
        if self.is_success() { Ok(&self.body) } else { Err(failure(path, self.status, &self.body).1.into()) }
    }

    fn read<T: DeserializeOwned>(&self, path: &'static str) -> Result<T, Fault> {
        let content = self.content(path)?;
        Ok(serde_json::from_slice(content).map_err(|error| MemberFault::Garbled(format!("{path}: {error}")))?)
    }
}

/// What a member has counted about each other member since it started, by that member's ID. If there is no counter,
/// nothing has happened yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PeerCounters {
    /// Bytes received.
    pub(crate) received: BTreeMap<u64, f64>,
    /// How often the connection was lost.
    pub(crate) lost: BTreeMap<u64, f64>,
}

impl PeerCounters {
    fn read(metrics: &str) -> Self {
        Self {
            received: series(metrics, "etcd_network_peer_received_bytes_total", "From"),
            lost: series(metrics, "etcd_network_disconnected_peers_total", "Remote"),
        }
    }
}

/// The values of a metric, by the member ID in a label. The lines are such as
/// `etcd_network_peer_received_bytes_total{From="91bc3c398fb3c146"} 1.21934e+06`.
fn series(metrics: &str, name: &str, label: &str) -> BTreeMap<u64, f64> {
    let of = |line: &str| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.split_once("} ")?;
        let id = labels.split(',').find_map(|pair| pair.strip_prefix(label)?.strip_prefix("=\"")?.strip_suffix('"'))?;
        Some((u64::from_str_radix(id, 16).ok()?, value.trim().parse().ok()?))
    };
    metrics.lines().filter_map(of).collect()
}

/// The fault that an answer without success describes, with gRPC's status code.
fn failure(path: &'static str, status: u16, body: &[u8]) -> (u32, MemberFault) {
    let failure: Failure = serde_json::from_slice(body).unwrap_or_default();
    if failure.message.contains("no leader") || failure.message.contains("leader changed") {
        return (failure.code, MemberFault::NoLeader);
    }
    let text = if failure.message.is_empty() { String::from_utf8_lossy(body) } else { failure.message.into() };
    let body = text.trim().chars().filter(|letter| !letter.is_control()).take(200).collect();
    (failure.code, MemberFault::Http { path, status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_of_the_others_is_read_from_the_metrics() {
        let metrics = "# TYPE etcd_network_peer_received_bytes_total counter\n\
            etcd_network_active_peers{Local=\"1\",Remote=\"d\"} 1\n\
            etcd_network_disconnected_peers_total{Local=\"1\",Remote=\"91bc3c398fb3c146\"} 3\n\
            etcd_network_peer_received_bytes_total{From=\"0\"} 2136\n\
            etcd_network_peer_received_bytes_total{From=\"91bc3c398fb3c146\"} 1.21934e+06\n\
            etcd_network_peer_sent_bytes_total{To=\"d\"} 1\n";
        let expected = PeerCounters {
            received: [(0, 2136.0), (0x91bc_3c39_8fb3_c146, 1_219_340.0)].into(),
            lost: [(0x91bc_3c39_8fb3_c146, 3.0)].into(),
        };
        assert_eq!(PeerCounters::read(metrics), expected);
    }
}
