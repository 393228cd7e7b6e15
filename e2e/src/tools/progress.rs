//! Reports the progress of a long step on standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A terminal shows one line, which is rewritten this often. Elsewhere each report is a new line of a log, so reports
/// are further apart.
const ON_TERMINAL: Duration = Duration::from_millis(200);
const IN_LOG: Duration = Duration::from_secs(20);

pub(super) struct Progress {
    what: String,
    started: Instant,
    shown: Instant,
    done: usize,
    total: usize,
    terminal: bool,
}

impl Progress {
    pub(super) fn start(what: &str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        let progress = Self { what: what.to_owned(), started: now, shown: now, done: 0, total: 0, terminal };
        progress.show(&format!("building {what}"));
        progress
    }

    /// The most steps that there can be: packages that Go has compiled before do not count as steps.
    pub(super) fn total(&mut self, total: usize) {
        self.total = total;
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.shown.elapsed() >= if self.terminal { ON_TERMINAL } else { IN_LOG } {
            self.shown = Instant::now();
            let seconds = self.started.elapsed().as_secs();
            self.show(&format!("building {}: {} of up to {} packages, {seconds} s", self.what, self.done, self.total));
        }
    }

    pub(super) fn finish(self) {
        self.show(&format!("built {} in {} s", self.what, self.started.elapsed().as_secs()));
        if self.terminal {
            eprintln!();
        }
    }

    fn show(&self, line: &str) {
        if self.terminal {
            // Returns to the start of the line, and clears the rest of what is on it.
            eprint!("\r{line}\x1b[K");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }
}
