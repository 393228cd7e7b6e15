//! The process that faults kill: which of its lives is the present one, and how to end it.

use crate::observer::Notes;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A manager through all its lives. No request of an ended life reaches a server.
#[derive(Default)]
pub(super) struct Victim {
    name: String,
    notes: Notes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many lives have begun.
    life: u32,
    /// The process, from its start until it is killed.
    pid: Option<Pid>,
    killed: bool,
}

impl Victim {
    /// A manager of this name that has not begun its first life.
    pub(super) fn new(name: &str, notes: Notes) -> Self {
        Self { name: name.to_owned(), notes, state: Mutex::default() }
    }

    /// Notes what happens to it, for the timeline.
    pub(super) fn note(&self, what: &str) {
        self.notes.note(format!("manager {} {what}", self.name));
    }

    /// The number of the present life, from 1.
    pub(super) fn life(&self) -> u32 {
        self.lock().life
    }

    /// # Errors
    /// When this life has been ended.
    pub(super) fn is_alive(&self, life: u32) -> Result<()> {
        let state = self.lock();
        ensure!(state.life == life && !state.killed, "the manager that asked is gone");
        Ok(())
    }

    /// Whether [`Victim::kill`] has ended the present life.
    pub(super) fn was_killed(&self) -> bool {
        self.lock().killed
    }

    /// Begins a life. Call this before its process starts.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        *state = State { life: state.life + 1, pid: None, killed: false };
    }

    /// The process of the present life.
    pub(super) fn runs_as(&self, pid: Option<u32>) {
        let mut state = self.lock();
        state.pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if state.killed {
            end(&mut state);
        }
    }

    /// Sends a signal to the process of the present life.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.lock().pid.context("the manager does not run")?;
        kill_process(pid, signal).context("signal the manager")
    }

    /// Ends the present life with `SIGKILL`. After this returns, none of its requests passes.
    pub(super) fn kill(&self) {
        let mut state = self.lock();
        state.killed = true;
        end(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end(state: &mut State) {
    if let Some(pid) = state.pid.take() {
        // A process that has just ended by itself no longer exists. The code that waits for it reports that.
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_ended_life_passes() {
        let victim = Victim::default();
        victim.begin();
        assert!(victim.is_alive(1).is_ok());
        victim.kill();
        assert!(victim.is_alive(1).is_err() && victim.was_killed());
        victim.begin();
        assert!(victim.is_alive(2).is_ok() && !victim.was_killed());
        assert!(victim.is_alive(1).is_err(), "a request may be on its way longer than its process lives");
    }
}
