//! One member, asked again and again.

use super::disk::Disks;
use super::record::{Answer, Event, Listed, Member, Status};
use super::recorder::Recorder;
use super::secrets::Secrets;
use etcd_client::{Client, ConnectOptions, StatusResponse};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// Time between two rounds of samples. All members are asked at once.
pub(super) const PERIOD: Duration = Duration::from_millis(100);
/// A member that has not answered by then is silent.
const DEADLINE: Duration = Duration::from_secs(1);
/// How often a member is asked until its list and its index are of the same moment.
const TRIES: usize = 5;

/// Whom to ask, and where its answers go.
pub(super) struct Probe {
    /// The EtcdCluster.
    pub etcd: String,
    /// Its Cluster.
    pub cluster: String,
    /// The member's client URL.
    pub url: String,
    pub secrets: Secrets,
    pub disks: Disks,
    pub recorder: Recorder,
    /// It is asked in every round with a number that this divides.
    pub stride: Arc<AtomicU64>,
}

/// A connection, and what was learnt over it.
#[derive(Default)]
struct Connection {
    client: Option<Client>,
    /// How many connections were given up.
    failures: usize,
    list: Vec<Listed>,
    list_at: u64,
    /// Index at which the list was looked at last: it cannot have changed while that is the same.
    looked_at: u64,
}

impl Probe {
    /// Asks for ever, first at `first`.
    pub(super) async fn run(self, first: Instant) {
        let mut connection = Connection::default();
        let mut rounds = interval_at(first, PERIOD);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for round in 0_u64.. {
            rounds.tick().await;
            if !round.is_multiple_of(self.stride.load(Ordering::Relaxed)) {
                continue;
            }
            let answer = match timeout(DEADLINE, self.ask(&mut connection)).await {
                Ok(None) => continue,
                Ok(Some(Ok(status))) => Answer::Status(Box::new(status)),
                Ok(Some(Err(why))) => Answer::Silent(why),
                Err(_) => Answer::Silent(format!("no answer within {} s", DEADLINE.as_secs())),
            };
            if let Answer::Silent(_) = answer {
                // The client waits for a broken connection longer than a machine takes to come back.
                connection.client = None;
                connection.failures += 1;
                self.disks.look(&self.recorder, &self.etcd, &self.url);
            }
            self.recorder.note(Event::Member(Member { etcd: self.etcd.clone(), url: self.url.clone(), answer }));
        }
    }

    /// Its answer; nothing as long as there are no credentials to ask it with.
    async fn ask(&self, connection: &mut Connection) -> Option<Result<Status, String>> {
        let mut client = match connection.client.take() {
            Some(client) => client,
            None => match self.connect(connection.failures).await? {
                Ok(client) => client,
                Err(error) => return Some(Err(error.to_string())),
            },
        };
        match learn(&mut client, connection).await {
            Ok(status) => {
                connection.client = Some(client);
                Some(Ok(status))
            }
            Err(error) => Some(Err(error.to_string())),
        }
    }

    async fn connect(&self, failures: usize) -> Option<Result<Client, etcd_client::Error>> {
        let credentials = self.secrets.of(&self.cluster, failures)?;
        let host = self.url.trim_start_matches("https://");
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
        let options = ConnectOptions::new().with_tls(credentials.tls(host)).with_connect_timeout(DEADLINE);
        Some(Client::connect([&self.url], Some(options)).await)
    }
}

/// Its status, and its members where they may have changed.
async fn learn(client: &mut Client, known: &mut Connection) -> Result<Status, etcd_client::Error> {
    let mut status = client.status().await?;
    if !status.is_learner() && status.raft_applied_index() != known.looked_at {
        // A list counts from the index on that was applied both before and after it: so lists of different members can
        // be put in order. Where writes never pause, the next round tries again.
        for _ in 0..TRIES {
            let before = status.raft_applied_index();
            let list = list(client).await?;
            if list == known.list {
                known.looked_at = before;
                break;
            }
            status = client.status().await?;
            if status.raft_applied_index() == before {
                (known.list, known.list_at, known.looked_at) = (list, before, before);
                break;
            }
        }
    }
    Ok(told(&status, known))
}

async fn list(client: &mut Client) -> Result<Vec<Listed>, etcd_client::Error> {
    // What this member knows itself: the library does not ask for more.
    let response = client.member_list().await?;
    let listed = |member: &etcd_client::Member| Listed {
        id: hexadecimal(member.id()),
        name: member.name().to_owned(),
        learner: member.is_learner(),
        urls: member.client_urls().to_vec(),
    };
    let mut list: Vec<Listed> = response.members().iter().map(listed).collect();
    list.sort();
    Ok(list)
}

fn told(status: &StatusResponse, known: &Connection) -> Status {
    let header = status.header();
    let learner = status.is_learner();
    Status {
        id: header.map(|header| hexadecimal(header.member_id())).unwrap_or_default(),
        cluster_id: header.map(|header| hexadecimal(header.cluster_id())).unwrap_or_default(),
        leader: if status.leader() == 0 { String::new() } else { hexadecimal(status.leader()) },
        term: status.raft_term(),
        index: status.raft_index(),
        applied: status.raft_applied_index(),
        revision: header.map(etcd_client::ResponseHeader::revision).unwrap_or_default(),
        version: status.version().to_owned(),
        learner,
        db_size: status.db_size(),
        errors: status.errors().to_vec(),
        list: if learner { Vec::new() } else { known.list.clone() },
        list_at: if learner { 0 } else { known.list_at },
    }
}

fn hexadecimal(id: u64) -> String {
    format!("{id:x}")
}
