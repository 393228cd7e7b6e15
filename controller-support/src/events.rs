//! Events for people. They are published on transitions only, and a reconcile never fails because of one.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

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
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None };
        if let Err(error) = self.recorder.publish(&event, about).await {
            tracing::warn!(%error, reason, "event not published");
        }
    }
}
