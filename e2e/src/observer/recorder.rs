//! The record while it is being written: in a file, and in memory for code that needs to know the present state.

use super::probe::PERIOD;
use super::record::{Answer, Event, Line, Member};
use super::state::{State, machine_at};
use anyhow::{Context, Result, anyhow};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// If the last answer of a member is at most this old, the member was asked without a gap.
const ROUNDS: Duration = PERIOD.saturating_mul(2);

/// Where all parts of the observer write what they see. Clones write the same record.
#[derive(Clone)]
pub(super) struct Recorder(Arc<Mutex<Writing>>);

struct Writing {
    file: File,
    /// Why the file could not be written, if so.
    failure: Option<String>,
    lines: Vec<Line>,
    /// The last event about each thing.
    latest: BTreeMap<(String, String), Event>,
    state: State,
}

impl Recorder {
    /// Begins a record in the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
        let writing =
            Writing { file, failure: None, lines: Vec::new(), latest: BTreeMap::new(), state: State::default() };
        Ok(Self(Arc::new(Mutex::new(writing))))
    }

    /// Records an event, unless it equals the last event about the same thing.
    pub(super) fn note(&self, event: Event) {
        let mut writing = self.lock();
        if let Some(key) = event.key() {
            let gone = matches!(event, Event::Gone { .. });
            match writing.latest.get(&key) {
                None if gone => return,
                Some(before) if *before == event => return,
                _ => {}
            }
            if gone {
                writing.latest.remove(&key);
            } else {
                writing.latest.insert(key, event.clone());
            }
        }
        writing.add(Line { at: now(), event });
    }

    /// Records the answer of a member, unless it equals the member's last answer. `between` is the time since that
    /// answer. If the member has a status, its disk may change, so the disk's last event is forgotten.
    pub(super) fn note_answer(&self, mut member: Member, between: Duration) {
        let gap = (between > ROUNDS).then(|| u64::try_from(between.as_millis()).unwrap_or(u64::MAX));
        let mut writing = self.lock();
        let event = Event::Member(member.clone());
        let Some(key) = event.key() else { return };
        if matches!(member.answer, Answer::Status(_)) {
            writing.latest.remove(&("disk".to_owned(), key.1.clone()));
        }
        if writing.latest.get(&key) != Some(&event) {
            writing.latest.insert(key, event);
            member.gap = gap;
            writing.add(Line { at: now(), event: Event::Member(member) });
        }
    }

    /// What is known now.
    pub(super) fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// The Machine of the member with this client URL.
    pub(super) fn machine_at(&self, etcd: &str, url: &str) -> Option<String> {
        let writing = self.lock();
        let seat = writing.state.etcds.get(etcd)?.seats.get(url).map(|seat| seat.machine.clone());
        seat.filter(|machine| !machine.is_empty()).or_else(|| machine_at(&writing.state.machines, etcd, url))
    }

    /// Everything so far.
    ///
    /// # Errors
    /// When a part of the record could not be written to its file.
    pub(super) fn lines(&self) -> Result<Vec<Line>> {
        let writing = self.lock();
        match &writing.failure {
            None => Ok(writing.lines.clone()),
            Some(failure) => Err(anyhow!("the observer's record could not be written: {failure}")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writing {
    fn add(&mut self, line: Line) {
        let written = serde_json::to_string(&line).map_err(std::io::Error::from);
        let written = written.and_then(|text| self.file.write_all(format!("{text}\n").as_bytes()));
        if let Err(error) = written {
            self.failure.get_or_insert_with(|| error.to_string());
        }
        self.state.apply(&line);
        self.lines.push(line);
    }
}

/// The time, from the same clock as in the audit log.
#[expect(clippy::disallowed_methods, reason = "the observer and histories say when something was seen")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::super::record::{self, Machine};
    use super::*;

    #[test]
    fn what_has_not_changed_is_not_repeated_and_the_file_has_what_memory_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.jsonl");
        let recorder = Recorder::create(&path).unwrap();
        let machine = |phase: &str| {
            Event::Machine(Machine { name: "a/b".to_owned(), phase: phase.to_owned(), ..Machine::default() })
        };
        let gone = || Event::Gone { what: "machine".to_owned(), name: "a/b".to_owned() };
        let note = || Event::note("twice");
        for event in
            [gone(), machine("Pending"), machine("Pending"), machine("Running"), note(), note(), gone(), gone()]
        {
            recorder.note(event);
        }
        recorder.note(machine("Running"));
        let lines = recorder.lines().unwrap();
        let events: Vec<Event> = lines.iter().map(|line| line.event.clone()).collect();
        assert_eq!(events, [machine("Pending"), machine("Running"), note(), note(), gone(), machine("Running")]);
        let file = std::io::BufReader::new(File::open(&path).unwrap());
        assert_eq!(record::read(file).unwrap(), lines);
    }
}
