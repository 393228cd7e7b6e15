//! Who asked what, when, and what came of it.

use super::figures::{Fate, Sample};
use super::request::Request;
use super::response::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Ok(Response),
    /// It certainly did not happen: nobody was there, or it was refused before it could take effect.
    Failed(String),
    /// Nobody knows whether it happened, or still will: no answer in time, a lost connection, a lost leader.
    Unknown(String),
}

/// One request from beginning to end. Times are nanoseconds since the history has begun.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who asked.
    pub client: usize,
    /// Requests of one stream never overlap. A client begins another one when it does not know what came of a request.
    pub stream: usize,
    /// What was asked.
    pub request: Request,
    /// Whether it is the second try of a write that was not answered.
    pub again: bool,
    /// When.
    pub call: i64,
    /// What came of it.
    pub outcome: Outcome,
    /// When that was known.
    pub returned: i64,
}

/// The clock that all clients of a history share.
#[derive(Clone, Debug)]
pub struct Clock {
    begun: Instant,
    streams: Arc<AtomicUsize>,
}

/// The times of one client, each later than the one before: that is what the judge asks for.
#[derive(Debug)]
pub(super) struct Times {
    clock: Clock,
    last: i64,
}

/// Records the requests of one client, which makes one after the other.
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
        Self { begun: Instant::now(), streams: Arc::default() }
    }

    /// Nanoseconds since the start; never 0.
    pub fn now(&self) -> i64 {
        i64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(i64::MAX).max(1)
    }

    /// A recorder for a client, whose number nobody else has.
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
    /// Records a request that `ask` makes.
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

    /// The same for a write that is tried once more.
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
    /// What it means for the figures.
    pub(super) fn sample(&self) -> Sample {
        let fate = match self.outcome {
            Outcome::Ok(_) => Fate::Ok,
            Outcome::Failed(_) => Fate::Failed,
            Outcome::Unknown(_) => Fate::Unknown,
        };
        let (is_read, again) = (self.request.is_read(), self.again);
        Sample { is_read, again, call: self.call, returned: self.returned, fate }
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
