//! Processes that the first process started itself, and those that it inherited.

use rustix::process::{WaitOptions, WaitStatus, wait};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    io,
    process::{Command, Stdio},
};
use tokio::sync::{oneshot, watch};

/// The number of inherited processes whose exit status is remembered.
const REMEMBERED: usize = 256;

/// Reaps all children in one place. Each task that started a process learns how it ended.
#[derive(Default)]
pub(super) struct Children {
    own: RefCell<HashMap<i32, oneshot::Sender<WaitStatus>>>,
    /// The last inherited processes that have ended.
    inherited: RefCell<VecDeque<(i32, WaitStatus)>>,
    deaths: watch::Sender<u64>,
}

impl Children {
    /// Starts a program, which writes to this process's output, and waits for its end.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) async fn run(&self, command: &mut Command) -> io::Result<WaitStatus> {
        let child = command.stdin(Stdio::null()).spawn()?;
        let (ended, end) = oneshot::channel();
        // There is only one thread, and it reaps nothing between these two lines.
        self.own.borrow_mut().insert(child.id() as i32, ended);
        end.await.map_err(io::Error::other)
    }

    /// Reaps all children that have ended.
    pub(super) fn reap(&self) {
        let mut reaped = 0;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            reaped += 1;
            let pid = pid.as_raw_nonzero().get();
            if let Some(waiting) = self.own.borrow_mut().remove(&pid) {
                // The task may no longer be waiting.
                let _ = waiting.send(status);
            } else {
                let mut inherited = self.inherited.borrow_mut();
                inherited.truncate(REMEMBERED - 1);
                inherited.push_front((pid, status));
            }
        }
        if reaped > 0 {
            self.deaths.send_modify(|deaths| *deaths += reaped);
        }
    }

    /// How an inherited process ended, if that was not long ago.
    pub(super) fn how_ended(&self, pid: i32) -> Option<WaitStatus> {
        self.inherited.borrow().iter().find(|(ended, _)| *ended == pid).map(|(_, status)| *status)
    }

    /// Changes whenever processes have been reaped.
    pub(super) fn deaths(&self) -> watch::Receiver<u64> {
        self.deaths.subscribe()
    }
}
