//! The side that hands out scenarios.

use super::durations::Durations;
use super::lane::{Ending, LANE};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

/// The lanes of one run. They start when they are needed.
pub(super) struct Lanes {
    idle: Mutex<Vec<Lane>>,
    /// Scenarios that run beside others hold it for reading, and a scenario that runs alone holds it for writing.
    turns: RwLock<()>,
    starter: Mutex<Sender<Sender<Result<Lane>>>>,
    /// Whether there are several lanes: then lines need the name of their scenario.
    several: bool,
    durations: Durations,
}

impl Lanes {
    pub(super) fn new(worlds: usize) -> Self {
        let (starter, requests) = channel::<Sender<Result<Lane>>>();
        // The kernel ends a lane when the thread that started it ends. So this thread does nothing else and stays.
        std::thread::spawn(move || {
            for request in requests {
                // When the program ends, nothing waits for the answer any more.
                let _ = request.send(Lane::start());
            }
        });
        Self {
            idle: Mutex::default(),
            turns: RwLock::default(),
            starter: Mutex::new(starter),
            several: worlds > 1,
            durations: Durations::default(),
        }
    }

    /// Runs one scenario in a free lane. Returns why it cannot show anything here, if it says so.
    ///
    /// # Errors
    /// The scenario's, or that its lane has ended before the scenario.
    pub(super) fn run(&self, scenario: &str, alone: bool) -> Result<Option<String>> {
        let _turns = if alone {
            (None, Some(self.turns.write().unwrap_or_else(PoisonError::into_inner)))
        } else {
            (Some(self.turns.read().unwrap_or_else(PoisonError::into_inner)), None)
        };
        let free = lock(&self.idle).pop();
        let mut lane = free.map_or_else(|| self.start(), Ok)?;
        let begun = Instant::now();
        let ending = lane.run(scenario, self.several);
        let skipped = ending.as_ref().ok().and_then(|ending| ending.skipped.as_deref());
        let told = skipped.map_or_else(|| scenario.to_owned(), |reason| format!("{scenario} SKIPPED, {reason}"));
        self.durations.add(&told, begun.elapsed());
        let ending = ending?;
        lock(&self.idle).push(lane);
        let Some(failure) = ending.failure else { return Ok(ending.skipped) };
        // The list of failures is printed at the end of the run, which may be two hours away.
        println!("{scenario} | failed: {failure}");
        bail!(failure)
    }

    /// How long the scenarios that have ended took.
    pub(super) fn durations(&self) -> &Durations {
        &self.durations
    }

    fn start(&self) -> Result<Lane> {
        let (answer, started) = channel();
        lock(&self.starter).send(answer).context("ask for a lane")?;
        started.recv().context("wait for a lane")?
    }

    /// Ends all lanes and waits for them. Lanes in which a scenario failed print where their logs are.
    pub(super) fn end(&self) {
        let ending: Vec<Child> = lock(&self.idle).drain(..).map(Lane::end).collect();
        for mut process in ending {
            if let Err(error) = process.wait() {
                eprintln!("a world cannot be waited for: {error}");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This program once more, in a world of its own.
struct Lane {
    process: Child,
    names: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Lane {
    fn start() -> Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM"])
            .arg(program)
            .env(LANE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("run setpriv (package util-linux)")?;
        let names = process.stdin.take().context("no way to a lane")?;
        let lines = BufReader::new(process.stdout.take().context("no way from a lane")?);
        Ok(Self { process, names, lines })
    }

    /// Prints what the scenario prints, as it does so.
    fn run(&mut self, scenario: &str, with_name: bool) -> Result<Ending> {
        writeln!(self.names, "{scenario}").context("its world has ended")?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line).context("read what a scenario prints")? == 0 {
                let status = self.process.wait().context("wait for a world")?;
                bail!("its world has ended before it: {status}");
            }
            let line = line.trim_end_matches('\n');
            match Ending::read(line) {
                Some(ending) => return Ok(ending),
                None if with_name => println!("{scenario} | {line}"),
                None => println!("{line}"),
            }
        }
    }

    /// Closes the lane's standard input. Without further names, the lane ends by itself.
    fn end(self) -> Child {
        self.process
    }
}
