//! Watches that can be held back, one resource at a time. Their events are kept until they are released.

use super::relay::Body;
use futures::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use std::collections::BTreeMap;
use tokio::sync::{mpsc, watch};

/// The resources that are held back, in the plural, and how many pieces of their watches are kept.
#[derive(Debug, Clone)]
pub(super) struct Watches(watch::Sender<BTreeMap<String, usize>>);

type Piece = Result<Frame<Bytes>, hyper::Error>;

impl Default for Watches {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Watches {
    /// Holds back all events of `resource` from now on, in existing and new watches.
    pub(super) fn hold(&self, resource: &str) {
        self.0.send_modify(|held| {
            held.entry(resource.to_owned()).or_default();
        });
    }

    /// Passes on everything that was kept. Returns how many pieces of a stream it was: at least one for each event.
    pub(super) fn release(&self, resource: &str) -> usize {
        let mut kept = 0;
        self.0.send_modify(|held| kept = held.remove(resource).unwrap_or_default());
        kept
    }

    /// How many pieces are kept now.
    pub(super) fn kept(&self, resource: &str) -> usize {
        self.0.borrow().get(resource).copied().unwrap_or_default()
    }

    /// The events of one watch, passed on as they arrive unless they are held back.
    ///
    /// They are always read: a server ends a watch whose client does not keep up, and that would be another fault.
    pub(super) fn follow(&self, resource: String, mut body: Incoming) -> Body {
        let (pieces, kept) = mpsc::unbounded_channel::<Piece>();
        let (counts, counted) = (self.0.clone(), resource.clone());
        tokio::spawn(async move {
            loop {
                let piece = tokio::select! {
                    piece = body.frame() => piece,
                    () = pieces.closed() => None,
                };
                let Some(piece) = piece else { return };
                counts.send_if_modified(|held| {
                    if let Some(count) = held.get_mut(&counted) {
                        *count += 1;
                    }
                    false
                });
                if pieces.send(piece).is_err() {
                    return;
                }
            }
        });
        let pieces = unfold((kept, self.0.subscribe(), resource), |(mut kept, mut held, resource)| async move {
            let piece = kept.recv().await?;
            // Checked after the piece has arrived, because that may have taken long.
            held.wait_for(|held| !held.contains_key(&resource)).await.ok()?;
            Some((piece, (kept, held, resource)))
        });
        StreamBody::new(pieces).boxed_unsync()
    }
}
