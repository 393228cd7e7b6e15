//! Which client requested what, when, and with what outcome.

use super::figures::{Fate, Sample};
use super::request::Request;
use super::response::Response;
use crate::observer::now;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Ok(Response),
    /// It certainly did not happen: the server could not be reached, or refused the request before it could take
    /// effect.
    Failed(String),
    /// It may have happened, or may still happen: there was no answer in time, or the connection or the leader was
    /// lost.
    Unknown(String),
}

/// One request from beginning to end. Times are nanoseconds since the history began.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The number of the client.
    pub client: usize,
    /// Requests of one stream never overlap. After a request with an unknown outcome, a client begins another stream.
    pub stream: usize,
    /// The request.
    pub request: Request,
    /// Whether it is the second try of a write that was not answered.
    pub again: bool,
    /// When it was made.
    pub call: i64,
    /// Its outcome.
    pub outcome: Outcome,
    /// When the outcome was known.
    pub returned: i64,
}

/// The clock that all clients of a history share.
#[derive(Clone, Debug)]
pub struct Clock {
    begun: Instant,
    /// The same moment by the clock of the observer's record.
    begun_at: Timestamp,
    streams: Arc<AtomicUsize>,
}

/// The clock of one client. Each time is later than the one before, as the judge requires.
#[derive(Debug)]
pub(super) struct Times {
    clock: Clock,
    last: i64,
}

/// Records the requests of one client, which makes them one after the other.
#[derive(Debug)]
pub struct Recorder {
    times: Times,
    client: usize,
    stream: usize,
    operations: Vec<Operation>,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Self {
        Self { begun: Instant::now(), begun_at: now(), streams: Arc::default() }
    }

    /// Nanoseconds since the start; never 0.
    pub fn now(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(i64::MAX).max(1)
    }

    /// A time of this clock as the observer's record has it.
    pub(super) fn at(&self, nanoseconds: i64) -> Timestamp {
        self.begun_at + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default())
    }

    /// A recorder for a client. No other client may have this number.
    pub fn client(&self, client: usize) -> Recorder {
        Recorder { times: self.times(), client, stream: self.stream(), operations: Vec::new() }
    }

    /// The times of one client.
    pub(super) fn times(&self) -> Times {
        Times { clock: self.clone(), last: 0 }
    }

    fn stream(&self) -> usize {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }
}

impl Times {
    /// The present time.
    pub(super) fn now(&mut self) -> i64 {
        self.last = self.clock.now().max(self.last + 1);
        self.last
    }
}

impl Recorder {
    /// Records `request`, which `ask` makes.
    pub async fn record(&mut self, request: Request, ask: impl Future<Output = Outcome>) -> Outcome {
        let call = self.times.now();
        let outcome = ask.await;
        let returned = self.times.now();
        let (client, stream, again) = (self.client, self.stream, false);
        self.operations.push(Operation { client, stream, request, again, call, outcome: outcome.clone(), returned });
        if matches!(outcome, Outcome::Unknown(_)) {
            self.stream = self.times.clock.stream();
        }
        outcome
    }

    /// The same for the second try of a write.
    pub(super) async fn record_again(&mut self, request: Request, ask: impl Future<Output = Outcome>) -> Outcome {
        let outcome = self.record(request, ask).await;
        if let Some(recorded) = self.operations.last_mut() {
            recorded.again = true;
        }
        outcome
    }

    /// Everything that was recorded.
    pub fn finish(self) -> Vec<Operation> {
        self.operations
    }
}

impl Operation {
    /// What the figures need of it.
    pub(super) fn sample(&self) -> Sample {
        let fate = match self.outcome {
            Outcome::Ok(_) => Fate::Ok,
            Outcome::Failed(_) => Fate::Failed,
            Outcome::Unknown(_) => Fate::Unknown,
        };
        let (is_read, again) = (self.request.is_read(), self.again);
        Sample { client: self.client, is_read, again, call: self.call, returned: self.returned, fate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    #[tokio::test]
    async fn times_grow_strictly_and_an_unknown_request_ends_its_stream() {
        let clock = Clock::start();
        let mut recorder = clock.client(3);
        for _ in 0..100 {
            recorder.record(Request::get("a"), ready(Outcome::Failed("no".to_owned()))).await;
        }
        recorder.record(Request::get("a"), ready(Outcome::Unknown("lost".to_owned()))).await;
        recorder.record(Request::get("a"), ready(Outcome::Failed("no".to_owned()))).await;
        let operations = recorder.finish();
        let times: Vec<i64> = operations.iter().flat_map(|operation| [operation.call, operation.returned]).collect();
        assert!(times[0] > 0);
        assert!(times.is_sorted_by(|a, b| a < b));
        let streams: Vec<usize> = operations.iter().map(|operation| operation.stream).collect();
        assert_eq!(streams[..101], [0; 101]);
        assert_eq!(streams[101], 1);
    }
}
