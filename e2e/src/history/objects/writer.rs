//! One writer: it creates, replaces and reads ConfigMaps, one request after the other.

use super::check::{Operation, Outcome, Request};
use crate::history::figures::{Fate, Sample};
use crate::history::record::Times;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Error, ResourceExt};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a writer waits for an answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a writer rests after a request without an answer.
const BACK_OFF: Duration = Duration::from_millis(300);
/// The key of the value in a ConfigMap.
const FIELD: &str = "value";
/// What the names of all objects begin with.
const PREFIX: &str = "written-";
/// The HTTP statuses of a write that is refused because another one came first, and of an object that does not exist.
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// A writer, and what it has recorded.
pub(super) struct Writer {
    times: Times,
    objects: Api<ConfigMap>,
    number: usize,
    names: usize,
    /// How long it rests after an answer.
    rest: Duration,
    random: StdRng,
    values: u64,
    /// Whether the present request belongs to the second try of a write.
    again: bool,
    /// The last state that this writer has seen of each object.
    seen: HashMap<String, ConfigMap>,
    operations: Vec<Operation>,
}

impl Writer {
    pub(super) fn new(
        times: Times,
        objects: Api<ConfigMap>,
        number: usize,
        names: usize,
        rest: Duration,
        seed: u64,
    ) -> Self {
        // Writers of one history must not make the same requests.
        let random = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(number as u64));
        let (seen, operations) = (HashMap::new(), Vec::new());
        Self { times, objects, number, names, rest, random, values: 0, again: false, seen, operations }
    }

    /// Runs until `stop` is set, and returns what it has recorded.
    pub(super) async fn run(mut self, stop: Arc<AtomicBool>) -> Vec<Operation> {
        while !stop.load(Ordering::Relaxed) {
            let name = format!("{PREFIX}{}", self.random.random_range(0..self.names));
            let answered = match self.random.random_range(0..10) {
                0 => self.list().await,
                1 | 2 => self.read(&name).await,
                // Replaces what was seen some time ago: often another writer has written since, and the write has to be
                // refused.
                3 | 4 => self.write(&name).await || self.change_again(&name).await,
                _ => self.change(&name).await || self.change_again(&name).await,
            };
            sleep(if answered { self.rest } else { BACK_OFF }).await;
        }
        self.finish()
    }

    /// Everything that was recorded.
    pub(super) fn finish(self) -> Vec<Operation> {
        self.operations
    }

    /// Reads all objects in one request. Returns whether it was answered.
    pub(super) async fn list(&mut self) -> bool {
        let call = self.times.now();
        let listed = timeout(ANSWER, self.objects.list(&ListParams::default())).await;
        let returned = self.times.now();
        let Ok(Ok(list)) = listed else { return false };
        let mut found: HashMap<String, ConfigMap> =
            list.items.into_iter().map(|object| (object.name_any(), object)).collect();
        for number in 0..self.names {
            let object = format!("{PREFIX}{number}");
            let outcome = found.remove(&object).map_or(Outcome::Missing, |found| self.saw(&object, found));
            let again = self.again;
            self.operations.push(Operation {
                client: self.number,
                object,
                request: Request::Read,
                call,
                outcome,
                returned,
                again,
            });
        }
        true
    }

    async fn read(&mut self, name: &str) -> bool {
        let call = self.times.now();
        let read = timeout(ANSWER, self.objects.get(name)).await;
        self.record(name, Request::Read, call, read.ok())
    }

    /// Reads an object and replaces it. Returns whether both requests were answered.
    async fn change(&mut self, name: &str) -> bool {
        self.read(name).await && self.write(name).await
    }

    /// Reads and replaces an object after a write that was not answered. As real clients do, the writer reads the
    /// present state first, and tries only once. It writes another value, because the first one may have been written,
    /// or may still be.
    async fn change_again(&mut self, name: &str) -> bool {
        sleep(BACK_OFF).await;
        self.again = true;
        let answered = self.change(name).await;
        self.again = false;
        answered
    }

    /// Replaces an object as this writer last saw it, or creates it if this writer has not seen it.
    async fn write(&mut self, name: &str) -> bool {
        self.values += 1;
        let value = format!("{}-{}", self.number, self.values);
        let data = Some([(FIELD.to_owned(), value.clone())].into());
        let call = self.times.now();
        let (request, written) = if let Some(seen) = self.seen.get(name) {
            let object = ConfigMap { data, ..seen.clone() };
            let written = timeout(ANSWER, self.objects.replace(name, &PostParams::default(), &object)).await;
            (Request::Update { base: version(seen), value }, written)
        } else {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let object = ConfigMap { data, metadata, ..ConfigMap::default() };
            (Request::Create { value }, timeout(ANSWER, self.objects.create(&PostParams::default(), &object)).await)
        };
        self.record(name, request, call, written.ok())
    }

    /// Records the outcome of a request. `answer` is `None` if there was no answer in time.
    fn record(&mut self, name: &str, request: Request, call: i64, answer: Option<Result<ConfigMap, Error>>) -> bool {
        let returned = self.times.now();
        let outcome = match answer {
            Some(Ok(object)) => self.saw(name, object),
            Some(Err(Error::Api(status))) if status.code == CONFLICT => Outcome::Refused(status.message.clone()),
            Some(Err(Error::Api(status))) if status.code == NOT_FOUND => Outcome::Missing,
            Some(Err(error)) => Outcome::Unknown(error.to_string()),
            None => Outcome::Unknown(format!("no answer within {} s", ANSWER.as_secs())),
        };
        let answered = !matches!(outcome, Outcome::Unknown(_));
        let (object, again) = (name.to_owned(), self.again);
        self.operations.push(Operation { client: self.number, object, request, call, outcome, returned, again });
        answered
    }

    fn saw(&mut self, name: &str, object: ConfigMap) -> Outcome {
        let value = object.data.as_ref().and_then(|data| data.get(FIELD)).cloned().unwrap_or_default();
        let outcome = Outcome::Ok { version: version(&object), value };
        self.seen.insert(name.to_owned(), object);
        outcome
    }
}

impl Operation {
    /// What the figures need of it.
    pub(super) fn sample(&self) -> Sample {
        let fate = match self.outcome {
            Outcome::Ok { .. } => Fate::Ok,
            Outcome::Missing if !self.is_write() => Fate::Ok,
            Outcome::Refused(_) => Fate::Refused,
            Outcome::Missing => Fate::Failed,
            Outcome::Unknown(_) => Fate::Unknown,
        };
        let (client, is_read, again) = (self.client, !self.is_write(), self.again);
        Sample { client, is_read, again, call: self.call, returned: self.returned, fate }
    }
}

fn version(object: &ConfigMap) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
