//! Asks one member again and again.

use super::disk::Disks;
use super::names::host_of;
use super::record::{Answer, Listed, Member, Status};
use super::recorder::Recorder;
use super::secrets::Secrets;
use etcd_client::{Client, ConnectOptions, StatusResponse};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

/// Time between two rounds. All members are asked at the same moment.
pub(super) const PERIOD: Duration = Duration::from_millis(100);
/// A member that has not answered by then is silent.
const DEADLINE: Duration = Duration::from_secs(1);
/// The reason that is recorded then.
const NO_ANSWER: &str = "no answer within 1 s";
/// A connection without an answer for this long is given up. After a machine has come back, a connection from before is
/// useless.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a round asks a member until its list and its index are from the same moment.
const TRIES: usize = 5;

/// The member that is asked, and where its answers go.
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
    /// The member is asked in every round whose number is a multiple of this.
    pub stride: Arc<AtomicU64>,
}

/// A connection, and what was read over it.
#[derive(Default)]
struct Connection {
    client: Option<Client>,
    /// How many connections were given up.
    failures: usize,
    list: Vec<Listed>,
    list_at: u64,
    /// The applied index at which the list was last read. While the index is the same, the list cannot have changed.
    looked_at: u64,
}

impl Probe {
    /// Asks forever, first at `first`.
    pub(super) async fn run(self, first: Instant) {
        let mut connection = Connection::default();
        let mut last = first;
        let mut rounds = interval_at(first, PERIOD);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        for round in 0_u64.. {
            rounds.tick().await;
            if !round.is_multiple_of(self.stride.load(Ordering::Relaxed)) {
                continue;
            }
            let answer = match self.answer(&mut connection, &mut last).await {
                None => continue,
                Some(Ok(status)) => Answer::Status(Box::new(status)),
                Some(Err(why)) => {
                    connection.failures += 1;
                    Answer::Silent(why)
                }
            };
            self.note(answer, &mut last);
        }
    }

    /// Waits for the member's answer, longer than the deadline: on a busy computer a connection takes its time, and one
    /// that is begun again every second is never established. At the deadline, the member is recorded as silent
    /// immediately.
    async fn answer(&self, connection: &mut Connection, last: &mut Instant) -> Option<Result<Status, String>> {
        let begun = Instant::now();
        let mut asked = pin!(self.ask(connection));
        let mut limit = DEADLINE;
        loop {
            match timeout(limit, &mut asked).await {
                Ok(answer) => return answer,
                Err(_) if begun.elapsed() >= PATIENCE => return Some(Err(NO_ANSWER.to_owned())),
                Err(_) => self.note(Answer::Silent(NO_ANSWER.to_owned()), last),
            }
            limit = PERIOD;
        }
    }

    fn note(&self, answer: Answer, last: &mut Instant) {
        match answer {
            Answer::Silent(_) => self.disks.look(&self.recorder, &self.etcd, &self.url),
            Answer::Status(_) => self.disks.forget(&self.etcd, &self.url),
        }
        let member = Member { etcd: self.etcd.clone(), url: self.url.clone(), answer, gap: None };
        self.recorder.note_answer(member, last.elapsed());
        *last = Instant::now();
    }

    /// The member's answer. `None` as long as there are no credentials to ask it with.
    async fn ask(&self, connection: &mut Connection) -> Option<Result<Status, String>> {
        let mut client = match connection.client.take() {
            Some(client) => client,
            None => match self.connect(connection.failures).await? {
                Ok(client) => client,
                Err(error) => return Some(Err(why(&error))),
            },
        };
        match learn(&mut client, connection).await {
            Ok(status) => {
                connection.client = Some(client);
                Some(Ok(status))
            }
            Err(error) => Some(Err(why(&error))),
        }
    }

    async fn connect(&self, failures: usize) -> Option<Result<Client, etcd_client::Error>> {
        let credentials = self.secrets.of(&self.cluster, failures)?;
        let host = host_of(&self.url).unwrap_or_default();
        let options = ConnectOptions::new().with_tls(credentials.tls(&host)).with_connect_timeout(PATIENCE);
        Some(Client::connect([&self.url], Some(options)).await)
    }
}

/// Reads the member's status, and the member list if it may have changed.
async fn learn(client: &mut Client, known: &mut Connection) -> Result<Status, etcd_client::Error> {
    let mut status = client.status().await?;
    if !status.is_learner() && status.raft_applied_index() != known.looked_at {
        // A list counts only if the applied index was the same before and after it. With this index, lists of different
        // members can be ordered. If writes never pause, the next round tries again.
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
    // The list as this member knows it: the library does not request a linearizable read.
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

/// The root cause of an error. The rest only says which call failed.
fn why(error: &etcd_client::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(below) = cause.source() {
        cause = below;
    }
    cause.to_string()
}

fn hexadecimal(id: u64) -> String {
    format!("{id:x}")
}
