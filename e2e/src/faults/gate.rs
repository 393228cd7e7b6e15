//! The gate that every request passes. It numbers the request and lets its fault happen.

use super::victim::Victim;
use anyhow::{Result, bail};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request to which a fault can happen.
pub trait Call: Clone + fmt::Display + Send + Sync + 'static {
    /// Whether it changes something, and therefore gets a number.
    fn is_write(&self) -> bool;

    /// The name by which a [`super::Place`] finds it.
    fn name(&self) -> String {
        self.to_string()
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The manager is killed, and the server never sees the request.
    KillBefore,
    /// The server carries out the request; the manager is killed and never sees the answer.
    KillAfter,
    /// The server carries out the request; then the connection is closed instead of answering.
    LoseAnswer,
    /// The request reaches the server later. Other requests overtake it.
    Delay(Duration),
    /// The request is answered with this HTTP status, and never reaches the server.
    Answer(u16),
}

impl Fault {
    /// Whether the server has to carry the request out first. A refusal is passed on instead, and the fault waits for
    /// the next such request: a manager that is killed after a refusal has changed nothing.
    fn is_after(self) -> bool {
        matches!(self, Self::KillAfter | Self::LoseAnswer)
    }

    /// What happens to the manager, in words, followed by the request.
    fn told(self) -> String {
        match self {
            Self::KillBefore => "is killed before".to_owned(),
            Self::KillAfter => "is killed after".to_owned(),
            Self::LoseAnswer => "does not get the answer to".to_owned(),
            Self::Delay(time) => format!("is held up for {time:?} at"),
            Self::Answer(code) => format!("gets {code} in place of an answer to"),
        }
    }
}

/// Gets the number of a request, if it is a write, and the request itself.
type Matches<C> = Box<dyn Fn(Option<usize>, &C) -> bool + Send + Sync>;

/// Which requests a fault happens to.
pub struct Rule<C> {
    matches: Matches<C>,
    fault: Fault,
    left: usize,
}

impl<C: Call> Rule<C> {
    /// The `number`-th write, from 1. For a fault that needs a write to be carried out, the first one that is, from that
    /// number on.
    #[must_use]
    pub fn at_write(number: usize, fault: Fault) -> Self {
        Self { matches: Box::new(move |found, _| found.is_some_and(|found| found >= number)), fault, left: 1 }
    }

    /// The first request, write or read, for which `matches` returns true, and which is carried out if the fault needs
    /// that.
    #[must_use]
    pub fn at_call(matches: impl Fn(&C) -> bool + Send + Sync + 'static, fault: Fault) -> Self {
        Self { matches: Box::new(move |_, call| matches(call)), fault, left: 1 }
    }

    /// Not only the first of these requests, but this many.
    #[must_use]
    pub fn times(self, times: usize) -> Self {
        Self { left: times, ..self }
    }
}

/// A fault that has happened.
#[derive(Clone, Debug)]
pub struct Strike<C> {
    /// The fault.
    pub fault: Fault,
    /// The request that it happened to.
    pub call: C,
}

/// The outcome of a write. A code is an HTTP status, or that of gRPC if a call by gRPC failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is not known: the client did not wait, or the server is away.
    Unknown,
    /// The server has answered with this code, and the answer has been passed to the manager.
    Answered(u16),
    /// The server has answered with this code, and the manager has not got the answer.
    AnswerLost(u16),
    /// The server has never seen the write. The manager got an answer with this code, or was killed.
    NotSent(Option<u16>),
}

/// Whether a server that answers with this code has carried the request out.
fn is_success(code: u16) -> bool {
    (200..300).contains(&code)
}

/// One write.
#[derive(Clone, Debug)]
pub struct Write<C> {
    /// The request.
    pub call: C,
    /// The life of the manager in which it was made, from 1.
    pub life: u32,
    /// Its outcome.
    pub fate: Fate,
}

/// Writes in order. The first one has number 1.
#[derive(Clone, Debug)]
pub struct Writes<C>(Vec<Write<C>>);

impl<C> Default for Writes<C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<C> Writes<C> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over them.
    pub fn iter(&self) -> impl Iterator<Item = &Write<C>> {
        self.0.iter()
    }
}

impl<C: Call> Writes<C> {
    /// The names of the writes, without their outcomes: what a [`super::Sweep`] begins with.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|write| write.call.name()).collect()
    }
}

/// One line for each write, with its number.
impl<C: fmt::Display> fmt::Display for Writes<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Write { call, life, fate }) in self.0.iter().enumerate() {
            writeln!(formatter, "{:>4} life {life}: {call}: {fate:?}", index + 1)?;
        }
        Ok(())
    }
}

/// Passes requests of one manager to one kind of server.
pub(super) struct Gate<C> {
    state: Mutex<State<C>>,
    /// Held while a write is on its way, so that "after the n-th" means that the next write has not been sent.
    turn: tokio::sync::Mutex<()>,
    victim: Arc<Victim>,
}

struct State<C> {
    rules: Vec<Rule<C>>,
    writes: Vec<Write<C>>,
    strikes: Vec<Strike<C>>,
}

impl<C: Call> Gate<C> {
    pub(super) fn new(victim: Arc<Victim>, rules: Vec<Rule<C>>) -> Self {
        let state = State { rules, writes: Vec::new(), strikes: Vec::new() };
        Self { state: Mutex::new(state), turn: tokio::sync::Mutex::default(), victim }
    }

    /// The manager's present life.
    pub(super) fn life(&self) -> u32 {
        self.victim.life()
    }

    pub(super) fn add(&self, rule: Rule<C>) {
        self.lock().rules.push(rule);
    }

    pub(super) fn writes(&self) -> Writes<C> {
        Writes(self.lock().writes.clone())
    }

    pub(super) fn strikes(&self) -> Vec<Strike<C>> {
        self.lock().strikes.clone()
    }

    /// Passes a request of a life on with `send`, which returns the server's code and answer, or lets its fault happen.
    /// `instead` makes an answer in the server's place.
    ///
    /// # Errors
    /// When there is no answer. The connection has to be closed then.
    pub(super) async fn pass<R>(
        &self,
        life: u32,
        call: &C,
        send: impl Future<Output = Result<(u16, R)>>,
        instead: impl FnOnce(u16) -> R,
    ) -> Result<R> {
        let mut turn = if call.is_write() { Some(self.turn.lock().await) } else { None };
        self.victim.is_alive(life)?;
        let (number, rule) = self.meet(life, call);
        let fault = rule.map(|(_, fault)| fault);
        match fault {
            Some(Fault::KillBefore) => {
                self.victim.kill();
                self.became(number, Fate::NotSent(None));
                bail!("killed before {call}");
            }
            Some(Fault::Answer(code)) => {
                self.became(number, Fate::NotSent(Some(code)));
                return Ok(instead(code));
            }
            Some(Fault::Delay(time)) => {
                let was_its_turn = turn.take().is_some();
                tokio::time::sleep(time).await;
                if was_its_turn {
                    turn = Some(self.turn.lock().await);
                }
                self.victim.is_alive(life)?;
            }
            Some(Fault::KillAfter | Fault::LoseAnswer) | None => {}
        }
        let sent = send.await;
        if let Some((rule, fault)) = rule.filter(|(_, fault)| fault.is_after()) {
            if let Some(code) = sent.as_ref().ok().map(|(code, _)| *code).filter(|code| is_success(*code)) {
                self.strikes_at(fault, call);
                if fault == Fault::KillAfter {
                    self.victim.kill();
                }
                self.became(number, Fate::AnswerLost(code));
                bail!("the answer to {call} is lost");
            }
            self.lock().rules[rule].left += 1;
        }
        let (code, answer) = sent?;
        self.became(number, Fate::Answered(code));
        drop(turn);
        Ok(answer)
    }

    /// The number of a request, if it is a write, and the rule that has a fault for it: its index, and the fault.
    fn meet(&self, life: u32, call: &C) -> (Option<usize>, Option<(usize, Fault)>) {
        let mut state = self.lock();
        let number = call.is_write().then(|| {
            state.writes.push(Write { call: call.clone(), life, fate: Fate::Unknown });
            state.writes.len()
        });
        let rules = state.rules.iter_mut().enumerate();
        let met = rules.filter(|(_, rule)| rule.left > 0).find(|(_, rule)| (rule.matches)(number, call));
        let met = met.map(|(index, rule)| {
            rule.left -= 1;
            (index, rule.fault)
        });
        drop(state);
        if let Some((_, fault)) = met.filter(|(_, fault)| !fault.is_after()) {
            self.strikes_at(fault, call);
        }
        (number, met)
    }

    fn strikes_at(&self, fault: Fault, call: &C) {
        self.victim.note(&format!("{} {call}", fault.told()));
        self.lock().strikes.push(Strike { fault, call: call.clone() });
    }

    fn became(&self, number: Option<usize>, fate: Fate) {
        if let Some(number) = number {
            self.lock().writes[number - 1].fate = fate;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
