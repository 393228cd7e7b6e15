//! Watches a scenario from outside, all the time: ten times a second it asks every member of every etcd cluster, and it
//! follows the objects of the management plane.
//!
//! What the observer sees becomes one record for each scenario, a file of JSON lines. [`rules`] judge the record at the
//! end. They know nothing about the scenario: a scenario that makes a fault reports it, so that our code is not blamed
//! for it.
//!
//! The observer has its own thread, so that no scenario holds it up, and reports what it has cost.

mod bugs;
mod disk;
mod fields;
mod fleet;
mod interruptions;
mod names;
mod objects;
mod observation;
mod probe;
mod processes;
pub mod record;
mod recorder;
pub mod rules;
mod secrets;
mod servers;
mod soon;
pub mod state;
#[cfg(test)]
mod story;
mod timeline;
mod verdict;
mod wal;

use crate::plane::users;
use anyhow::{Context, Result, anyhow};
use disk::Disks;
use fleet::Fleet;
use futures::future::join;
use record::{Event, Fault, Line};
use recorder::Recorder;
use secrets::Secrets;
use servers::News;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

pub use disk::DataDirectory;
pub use interruptions::{Interruption, interruptions};
pub(crate) use observation::Observation;
pub(crate) use recorder::now;
pub use servers::Servers;
pub use timeline::timeline;
pub use verdict::{Expected, Verdict, writes};

/// Called with a Machine, `<namespace>/<name>`, that is being deleted: its logs go with its machine. It is called again
/// as often as the Machine changes.
pub type KeepLogs = dyn Fn(&str) + Send + Sync;

/// What a bed shows the observer of its machines.
pub struct Insight {
    /// Where a machine has etcd's data.
    pub data: Arc<DataDirectory>,
    /// Keeps the logs of a machine.
    pub keep_logs: Arc<KeepLogs>,
}

/// Name of the timeline's file.
pub const TIMELINE: &str = "timeline.txt";
/// Name of the record's file.
pub const RECORD: &str = "observer.jsonl";
/// How long the members of a fault may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Until [`Observer::over`] says otherwise.
    Lasting,
    /// For at most this time. Once they have fallen silent, only until they answer again.
    AtMost(Duration),
}

/// A running observer. If it is dropped without being stopped, it ends too, but its record is not judged.
pub struct Observer {
    recorder: Recorder,
    servers: Servers,
    expected: Mutex<Vec<Expected>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl Observer {
    /// Begins to observe. `kubeconfig` is that of [`users::OBSERVER`].
    ///
    /// # Errors
    /// When the record in `logs` or the thread cannot be created.
    pub fn start(scenario: &str, logs: &Path, kubeconfig: &Path, insight: Insight) -> Result<Self> {
        let recorder = Recorder::create(&logs.join(RECORD))?;
        recorder.note(Event::Begun { scenario: scenario.to_owned() });
        let (stop, stopped) = oneshot::channel();
        let (servers, news) = Servers::channel();
        let (of_thread, kubeconfig) = (recorder.clone(), kubeconfig.to_owned());
        let thread = std::thread::Builder::new().name(users::OBSERVER.to_owned());
        let thread = thread.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                tokio::select! {
                    result = observe(of_thread, &kubeconfig, insight, news) => result,
                    _ = stopped => Ok(()),
                }
            })
        });
        let thread = thread.context("start the observer's thread")?;
        Ok(Self { recorder, servers, expected: Mutex::default(), stop, thread })
    }

    /// Records that a scenario makes a fault: from now on the members on these machines, `<namespace>/<name>`, may be
    /// silent. Whatever we do about it has to keep to the rules. Call it before the fault is made.
    pub fn fault(&self, what: impl Into<String>, machines: &[String], silence: Silence) {
        let until = match silence {
            Silence::Lasting => None,
            Silence::AtMost(time) => Some(now() + time),
        };
        let machines = machines.to_vec();
        self.recorder.note(Event::Fault(Fault { what: what.into(), machines, until, ..Fault::default() }));
    }

    /// Records that a scenario removes the member on this machine from etcd itself, as a person with etcdctl does: it
    /// leaves without our doing, and is silent from then on. Call it before the member is removed.
    pub fn removal_by_hand(&self, what: impl Into<String>, machine: String) {
        let machines = vec![machine];
        self.recorder.note(Event::Fault(Fault {
            what: what.into(),
            machines,
            removed_by_hand: true,
            ..Fault::default()
        }));
    }

    /// Records that a scenario has ended its faults of these machines: their members have to answer again in this time.
    pub fn over(&self, what: impl Into<String>, machines: &[String], recovery: Duration) {
        let (machines, until) = (machines.to_vec(), Some(now() + recovery));
        self.recorder.note(Event::Fault(Fault { what: what.into(), machines, until, over: true, ..Fault::default() }));
    }

    /// For scenarios and parts of the test bed that note what they do to our processes.
    #[must_use]
    pub fn notes(&self) -> Notes {
        Notes { recorder: Some(self.recorder.clone()), namespace: String::new() }
    }

    /// The existing Machines of this name, as `<namespace>/<name>`, in any namespace.
    #[must_use]
    pub fn machines_called(&self, name: &str) -> Vec<String> {
        let is_it = |machine: &String| machine.split_once('/').is_some_and(|(_, it)| it == name);
        self.recorder.state().machines.into_keys().filter(is_it).collect()
    }

    /// All lines so far.
    ///
    /// # Errors
    /// When a part of it could not be written.
    pub fn lines(&self) -> Result<Vec<Line>> {
        self.recorder.lines()
    }

    /// Expects a violation that the scenario provokes. It is an error if the violation is not found.
    pub fn expect(&self, expected: Expected) {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).push(expected);
    }

    /// The handle through which API servers of workload clusters are reported to the observer.
    #[must_use]
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Ends the observer, and returns the whole record and the violations that the scenario expects.
    ///
    /// # Errors
    /// When the observer has ended before, or a part of the record could not be written.
    pub fn stop(self) -> Result<(Vec<Line>, Vec<Expected>)> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| anyhow!("the observer has panicked"))?.context("the observer has ended")?;
        self.recorder.note(Event::Ended);
        let expected = self.expected.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((self.recorder.lines()?, expected))
    }
}

/// Where a part of the test bed notes what it does to our processes, so that the timeline shows it. The default notes
/// nothing, for beds without an observation.
#[derive(Clone, Default)]
pub struct Notes {
    recorder: Option<Recorder>,
    namespace: String,
}

impl Notes {
    /// The same, only for the timelines of one namespace, if there is one.
    #[must_use]
    pub fn of(self, namespace: Option<&str>) -> Self {
        Self { namespace: namespace.unwrap_or_default().to_owned(), ..self }
    }

    /// Notes an action that changes nothing for the rules.
    pub fn note(&self, what: impl Into<String>) {
        if let Some(recorder) = &self.recorder {
            recorder.note(Event::Note { text: what.into(), namespace: self.namespace.clone() });
        }
    }
}

/// Observes until it is dropped, and then records what it has cost.
async fn observe(recorder: Recorder, kubeconfig: &Path, insight: Insight, news: UnboundedReceiver<News>) -> Result<()> {
    let client = servers::client(kubeconfig).await.context("the observer's way to the API server")?;
    let secrets = Secrets::default();
    let fleet = Fleet { secrets: secrets.clone(), disks: Disks::new(insight.data), recorder: recorder.clone() };
    let servers = servers::follow(news, recorder.clone());
    let _cost = Cost(recorder.clone());
    let others = join(secrets.follow(client.clone()), objects::follow(client, recorder.clone(), insight.keep_logs));
    tokio::select! {
        asked = fleet.run() => asked,
        _ = join(others, servers) => Ok(()),
    }
}

/// The beginning of the note that says what the observer has cost.
const COST: &str = "the observer took";

/// What the observer of a record has cost, in words. `None` if it is still running.
#[must_use]
pub fn cost(lines: &[Line]) -> Option<&str> {
    lines.iter().rev().find_map(|line| match &line.event {
        Event::Note { text, .. } if text.starts_with(COST) => Some(text.as_str()),
        _ => None,
    })
}

/// Records, when it is dropped, how much processor time this thread has used.
struct Cost(Recorder);

impl Drop for Cost {
    fn drop(&mut self) {
        // Nanoseconds on a processor, nanoseconds waiting for one, and how often it had one.
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut numbers = statistics.split_whitespace().filter_map(|number| number.parse().ok());
        let mut next = || Duration::from_nanos(numbers.next().unwrap_or_default()).as_secs_f32();
        let (ran, waited) = (next(), next());
        let text = format!("{COST} {ran:.2} s of processor time, and waited {waited:.2} s for it");
        self.0.note(Event::note(text));
    }
}
