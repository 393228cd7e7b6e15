//! Events for people. They are published on transitions only, and a reconcile never fails because of one.

use crate::TtlCache;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::sync::Arc;
use std::time::Duration;

/// The longest note that the API server accepts, in bytes.
///
/// Source: `NoteLengthLimit` in Kubernetes 1.36, pkg/apis/core/validation/events.go.
const LONGEST_NOTE: usize = 1024;

/// How long an event that happens again counts as the same one: as long as a [`Recorder`] remembers it.
const SAME: Duration = Duration::from_secs(360);

/// Publishes events of one controller.
///
/// A [`Recorder`] treats events with the same reason about the same object as one event, whatever their notes say. If
/// two members failed, only the first would be named. So each sentence has its own recorder.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    recorders: Arc<TtlCache<Sentence, Recorder>>,
}

/// What makes two events the same: the object's UID, the reason and the note.
type Sentence = (Option<String>, String, String);

impl Events {
    /// Events reported by `controller`.
    #[must_use]
    pub fn new(client: Client, controller: &str) -> Self {
        let reporter = Reporter { controller: controller.to_owned(), instance: None };
        Self { client, reporter, recorders: Arc::new(TtlCache::new(SAME)) }
    }

    /// Publishes that something went as it should.
    pub async fn normal(&self, about: &ObjectReference, action: &str, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Normal, about, action, reason, note.into()).await;
    }

    /// Publishes something that a person should look at.
    pub async fn warning(&self, about: &ObjectReference, action: &str, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Warning, about, action, reason, note.into()).await;
    }

    async fn publish(&self, type_: EventType, about: &ObjectReference, action: &str, reason: &str, note: String) {
        let note = cut(note);
        let recorder = self.recorder((about.uid.clone(), reason.to_owned(), note.clone()));
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None };
        if let Err(error) = recorder.publish(&event, about).await {
            tracing::warn!(%error, reason, "event not published");
        }
    }

    fn recorder(&self, sentence: Sentence) -> Recorder {
        let known = self.recorders.get(&sentence);
        let recorder = known.unwrap_or_else(|| Recorder::new(self.client.clone(), self.reporter.clone()));
        self.recorders.insert(sentence, recorder.clone());
        recorder
    }
}

/// The note, shortened to what the API server accepts.
fn cut(mut note: String) -> String {
    if note.len() > LONGEST_NOTE {
        let end = (0..=LONGEST_NOTE - '…'.len_utf8()).rev().find(|end| note.is_char_boundary(*end));
        note.truncate(end.unwrap_or_default());
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_is_too_long_is_cut_between_two_characters() {
        let longest = "x".repeat(LONGEST_NOTE);
        assert_eq!(cut(longest.clone()), longest);
        assert_eq!(cut(format!("{longest}y")), format!("{}…", "x".repeat(LONGEST_NOTE - 3)));
        let wide = cut("ü".repeat(LONGEST_NOTE));
        assert!(wide.len() <= LONGEST_NOTE && wide.ends_with("ü…"), "{} bytes", wide.len());
    }
}
