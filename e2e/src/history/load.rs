//! One client of a load: it makes a request, rests for a moment, and makes the next. It tries a write without an answer
//! once more.

use super::endpoints::Endpoints;
use super::mix::Mix;
use super::record::{Operation, Outcome, Recorder};
use super::request::Request;
use super::session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// How long a client rests after a request without an answer. Without this rest there would be thousands of such
/// requests, which show nothing and which the judge would have to consider.
const BACK_OFF: Duration = Duration::from_millis(200);

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The seed of the requests. Without it, `E2E_SEED` is used, or a random one.
    pub seed: Option<u64>,
    /// How many clients there are in each group.
    pub clients: usize,
    /// How many keys the clients share. The fewer keys there are, the more often clients write to the same one.
    pub keys: usize,
    /// How long a client rests after an answer.
    pub rest: Duration,
    /// Whether half of the clients keep the endpoints of the beginning, as API servers do. Where every member is
    /// replaced, such clients would have no endpoint left unless something gives them new ones.
    pub keep_endpoints: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self { seed: None, clients: 4, keys: 8, rest: Duration::from_millis(25), keep_endpoints: true }
    }
}

/// A client that runs until `stop` is set.
pub(super) struct Client {
    pub(super) recorder: Recorder,
    pub(super) session: Session,
    pub(super) endpoints: Endpoints,
    pub(super) mix: Mix,
    pub(super) rest: Duration,
    pub(super) stop: Arc<AtomicBool>,
    /// How many writes of all clients were acknowledged.
    pub(super) written: Arc<AtomicUsize>,
    /// Where in the list of endpoints it begins, so that not all clients begin with the same endpoint.
    pub(super) turn: usize,
}

impl Client {
    /// Runs until it is stopped, and returns what it has recorded.
    pub(super) async fn run(mut self) -> Vec<Operation> {
        while !self.stop.load(Ordering::Relaxed) {
            let request = self.mix.request();
            let mut answered = self.is_answered(&request, false).await;
            if !answered && let Some(again) = self.mix.again(&request) {
                sleep(BACK_OFF).await;
                answered = self.is_answered(&again, true).await;
            }
            sleep(if answered { self.rest } else { BACK_OFF }).await;
        }
        self.recorder.finish()
    }

    /// Sends a request to the next endpoint, and returns whether there was an answer. While there is no endpoint,
    /// nothing is sent.
    async fn is_answered(&mut self, request: &Request, again: bool) -> bool {
        self.turn += 1;
        let Some(endpoint) = self.endpoints.pick(self.turn) else { return false };
        let asked = self.session.ask(&endpoint, request);
        let outcome = if again {
            self.recorder.record_again(request.clone(), asked).await
        } else {
            self.recorder.record(request.clone(), asked).await
        };
        self.mix.learn(request, &outcome);
        let answered = matches!(outcome, Outcome::Ok(_));
        if answered && !request.is_read() {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        answered
    }
}
