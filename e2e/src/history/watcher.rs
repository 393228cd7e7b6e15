//! A client that watches every key from the beginning. When a watch ends, it begins another one elsewhere.

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

/// How often the client asks a member for the progress of its watch.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long a watch may be silent in spite of these requests. After that, the client begins another one elsewhere.
const SILENCE: Duration = Duration::from_secs(4);
/// How long beginning a watch may take.
const BEGIN: Duration = Duration::from_secs(3);
/// How long the client rests before the next attempt.
const BACK_OFF: Duration = Duration::from_millis(100);

/// One watch, in the form of etcd's suite.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Watch {
    /// The number of the client.
    #[serde(skip)]
    pub client: usize,
    /// What was requested.
    pub request: WatchRequest,
    /// What the watch reported.
    pub responses: Vec<WatchResponse>,
}

/// What a watch should report.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct WatchRequest {
    /// What the keys begin with.
    pub key: String,
    /// The first revision.
    pub revision: i64,
    /// Whether to watch all keys that begin with `key`.
    pub with_prefix: bool,
    /// Whether to report the progress of the watch now and then.
    pub with_progress_notify: bool,
    /// Whether to report the previous value with each change.
    #[serde(rename = "WithPrevKV")]
    pub with_previous: bool,
}

/// One response of a watch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct WatchResponse {
    /// Changes, in their order.
    pub events: Vec<WatchEvent>,
    /// Whether it only reports progress.
    pub is_progress_notify: bool,
    /// The store's revision.
    pub revision: i64,
    /// When it arrived, in nanoseconds since the history began.
    pub time: i64,
    /// Why the watch ended, or empty.
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
    /// The new value; empty after a deletion.
    pub value: Value,
    /// The change's revision.
    pub revision: i64,
    /// Whether the key did not exist before.
    pub is_create: bool,
    /// The key before the change.
    #[serde(rename = "PrevValue", skip_serializing_if = "Option::is_none")]
    pub previous: Option<Previous>,
}

/// A key before a change.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Previous {
    /// Its value.
    pub value: Value,
    /// Revision of its last change.
    pub mod_revision: i64,
    /// How many times it had been written.
    pub version: i64,
}

/// One watching client.
pub(super) struct Watcher {
    pub(super) clock: Clock,
    pub(super) client: usize,
    pub(super) endpoints: Endpoints,
    pub(super) access: EtcdAccess,
    /// The last revision of the history, once it is known.
    pub(super) last: watch::Receiver<Option<i64>>,
}

impl Watcher {
    /// Watches until it has everything up to the last revision of the history.
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

    /// Records responses until the watch ends, falls silent, or has reported everything.
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
    /// The revision up to which the watch has reported everything.
    fn reaches(&self, before: i64) -> i64 {
        let events = self.events.iter().map(|event| event.revision);
        let progress = self.is_progress_notify.then_some(self.revision);
        events.chain(progress).fold(before, i64::max)
    }
}

/// What a message reports; `None` if it only says that the watch has begun.
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
