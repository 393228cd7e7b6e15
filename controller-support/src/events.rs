//! Events for people. They are published on transitions only, and a reconcile never fails because of one.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

/// The longest note that the API server takes, in bytes.
///
/// Source: `NoteLengthLimit` in Kubernetes 1.36, pkg/apis/core/validation/events.go.
const LONGEST_NOTE: usize = 1024;

/// Publishes events of one controller.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events reported by `controller`.
    #[must_use]
    pub fn new(client: Client, controller: &str) -> Self {
        Self { recorder: Recorder::new(client, Reporter { controller: controller.to_owned(), instance: None }) }
    }

    /// Something went as it should.
    pub async fn normal(&self, about: &ObjectReference, action: &str, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Normal, about, action, reason, note.into()).await;
    }

    /// Somebody should look at it.
    pub async fn warning(&self, about: &ObjectReference, action: &str, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Warning, about, action, reason, note.into()).await;
    }

    async fn publish(&self, type_: EventType, about: &ObjectReference, action: &str, reason: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(cut(note)),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            tracing::warn!(%error, reason, "event not published");
        }
    }
}

/// The note as far as the API server takes it.
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
