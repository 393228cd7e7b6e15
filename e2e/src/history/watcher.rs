//! A client that watches every key from the beginning, and goes on elsewhere when a watch ends.

use super::endpoints::Endpoints;
use super::record::Clock;
use super::request::{PREFIX, Value};
use super::session::Session;
use super::wire;
use crate::plane::workload::EtcdAccess;
use etcd_client::{Event, EventType, WatchOptions, WatchStream};
use serde::Serialize;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, timeout};

/// A member is asked this often how far the watch is.
const PROGRESS: Duration = Duration::from_secs(1);
/// A watch that says nothing for this time, though asked, is made again elsewhere.
const SILENCE: Duration = Duration::from_secs(4);
/// How long it takes at most until a watch has begun.
const BEGIN: Duration = Duration::from_secs(3);
/// Before the next attempt.
const BACK_OFF: Duration = Duration::from_millis(100);

/// One watch, in the form of etcd's suite.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Watch {
    /// Who watches.
    #[serde(skip)]
    pub client: usize,
    /// What was asked for.
    pub request: WatchRequest,
    /// What came.
    pub responses: Vec<WatchResponse>,
}

/// What a watch is to tell.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct WatchRequest {
    /// What the keys begin with.
    pub key: String,
    /// The first revision.
    pub revision: i64,
    /// All keys that begin with `key`.
    pub with_prefix: bool,
    /// How far the watch is, now and then.
    pub with_progress_notify: bool,
    /// What was there before, with each change.
    #[serde(rename = "WithPrevKV")]
    pub with_previous: bool,
}

/// What a watch has told at once.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct WatchResponse {
    /// Changes, in their order.
    pub events: Vec<WatchEvent>,
    /// It only says how far the watch is.
    pub is_progress_notify: bool,
    /// The store's revision.
    pub revision: i64,
    /// When it came, in nanoseconds since the history has begun.
    pub time: i64,
    /// Why the watch has ended, or empty.
    pub error: String,
}

/// One change of one key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct WatchEvent {
    /// `put-operation` or `delete-operation`.
    #[serde(rename = "Type")]
    pub kind: &'static str,
    /// The key.
    pub key: String,
    /// What is there now; empty after a deletion.
    pub value: Value,
    /// The change's revision.
    pub revision: i64,
    /// The key was not there before.
    pub is_create: bool,
    /// What was there before.
    #[serde(rename = "PrevValue", skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// A key before a change.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Previous {
    /// Its value.
    pub value: Value,
    /// Revision of the change that made it.
    pub mod_revision: i64,
    /// How often it had been written.
    pub version: i64,
}

/// Who watches, and where.
pub(super) struct Watcher {
    pub(super) clock: Clock,
    pub(super) client: usize,
    pub(super) endpoints: Endpoints,
    pub(super) access: EtcdAccess,
    /// The last revision of the history, once that is known.
    pub(super) last: watch::Receiver<Option<i64>>,
}

impl Watcher {
    /// Watches until the last revision of the history has come.
    pub(super) async fn run(mut self) -> Vec<Watch> {
        let mut session = Session::for_watches(&self.access);
        let mut watches = Vec::new();
        let mut seen = 0;
        let mut turn = self.client;
        while !self.is_over(seen) {
            turn += 1;
            let Some(endpoint) = self.endpoints.pick(turn) else {
                sleep(BACK_OFF).await;
                continue;
            };
            let mut watch = self.watch_from(seen + 1);
            if let Some(mut stream) = begin(&mut session, &endpoint, seen + 1).await {
                self.listen(&mut stream, &mut watch, &mut seen).await;
                watches.push(watch);
            }
            session.forget(&endpoint);
            if !self.is_over(seen) {
                sleep(BACK_OFF).await;
            }
        }
        watches
    }

    fn is_over(&self, seen: i64) -> bool {
        self.last.borrow().is_some_and(|last| seen >= last)
    }

    fn watch_from(&self, revision: i64) -> Watch {
        let request = WatchRequest {
            key: PREFIX.to_owned(),
            revision,
            with_prefix: true,
            with_progress_notify: true,
            with_previous: true,
        };
        Watch { client: self.client, request, responses: Vec::new() }
    }

    /// Takes what comes until the watch ends, falls silent, or has nothing more to tell.
    async fn listen(&mut self, stream: &mut WatchStream, watch: &mut Watch, seen: &mut i64) {
        let mut progress = interval(PROGRESS);
        let mut heard = Instant::now();
        while !self.is_over(*seen) {
            tokio::select! {
                message = stream.message() => match message {
                    Ok(Some(message)) => {
                        heard = Instant::now();
                        if let Some(response) = response(&message, self.clock.now()) {
                            *seen = response.reaches(*seen);
                            watch.responses.push(response);
                        }
                        if message.canceled() {
                            return;
                        }
                    }
                    Ok(None) | Err(_) => return,
                },
                _ = progress.tick() => {
                    if heard.elapsed() > SILENCE || stream.request_progress().await.is_err() {
                        return;
                    }
                }
                changed = self.last.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }
}

async fn begin(session: &mut Session, endpoint: &str, revision: i64) -> Option<WatchStream> {
    let mut client = session.connect(endpoint).await.ok()?;
    let options =
        WatchOptions::new().with_prefix().with_start_revision(revision).with_progress_notify().with_prev_key();
    timeout(BEGIN, client.watch(PREFIX, Some(options))).await.ok()?.ok()
}

impl WatchResponse {
    /// The revision up to which everything has come.
    fn reaches(&self, before: i64) -> i64 {
        let events = self.events.iter().map(|event| event.revision);
        let progress = self.is_progress_notify.then_some(self.revision);
        events.chain(progress).fold(before, i64::max)
    }
}

/// What a message tells; nothing if it only says that the watch has begun.
fn response(message: &etcd_client::WatchResponse, time: i64) -> Option<WatchResponse> {
    let revision = wire::revision(message.header());
    let error = if message.canceled() { format!("canceled: {}", message.cancel_reason()) } else { String::new() };
    let events: Vec<WatchEvent> = message.events().iter().filter_map(event).collect();
    let is_progress_notify = events.is_empty() && !message.canceled() && !message.created() && revision != 0;
    let says_something = !message.created() || message.canceled();
    says_something.then_some(WatchResponse { events, is_progress_notify, revision, time, error })
}

fn event(event: &Event) -> Option<WatchEvent> {
    let now = event.kv()?;
    let is_put = matches!(event.event_type(), EventType::Put);
    let written = wire::key_value(now);
    let previous = event.prev_kv().map(wire::key_value);
    Some(WatchEvent {
        kind: if is_put { "put-operation" } else { "delete-operation" },
        key: written.key,
        value: written.value,
        revision: written.mod_revision,
        is_create: is_put && now.create_revision() == now.mod_revision(),
        previous: previous.map(|previous| Previous {
            value: previous.value,
            mod_revision: previous.mod_revision,
            version: previous.version,
        }),
    })
}
