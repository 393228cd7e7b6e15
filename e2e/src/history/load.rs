//! One client of a load: a request, a moment's rest, the next request. A write without an answer is tried once more.

use super::endpoints::Endpoints;
use super::mix::Mix;
use super::record::{Operation, Outcome, Recorder};
use super::request::Request;
use super::session::Session;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// After a request that was not answered. Without a rest there would be thousands of them, which show nothing and which
/// the judge has to think about.
const BACK_OFF: Duration = Duration::from_millis(200);

/// How much is asked of etcd.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Decides the requests; without it, `E2E_SEED` or chance.
    pub seed: Option<u64>,
    /// How many clients there are in each of the two groups.
    pub clients: usize,
    /// How many keys they share. The fewer, the more they meet.
    pub keys: usize,
    /// How long a client rests after an answer.
    pub rest: Duration,
    /// Half of the clients keep the endpoints that there were at the beginning, as API servers do. Where every member is
    /// replaced that nobody says to use, they would be left with none.
    pub keep_endpoints: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self { seed: None, clients: 4, keys: 8, rest: Duration::from_millis(25), keep_endpoints: true }
    }
}

/// A client that goes on until it is told to stop.
pub(super) struct Client {
    pub(super) recorder: Recorder,
    pub(super) session: Session,
    pub(super) endpoints: Endpoints,
    pub(super) mix: Mix,
    pub(super) rest: Duration,
    pub(super) stop: Arc<AtomicBool>,
    /// Writes of all clients that were acknowledged.
    pub(super) written: Arc<AtomicUsize>,
    /// With which endpoint it begins, so that not all begin with the same.
    pub(super) turn: usize,
}

impl Client {
    /// Gives what it has recorded.
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

    /// Asks the next endpoint, and says whether it has answered. While there is none, nobody is asked.
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
