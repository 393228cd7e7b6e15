//! Watches that can be held back, one resource at a time: what comes is kept until they are released.

use super::relay::Body;
use futures::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use std::collections::BTreeMap;
use tokio::sync::{mpsc, watch};

/// The resources that are held back, in the plural, with how many pieces have been kept of each.
#[derive(Debug, Clone)]
pub(super) struct Watches(watch::Sender<BTreeMap<String, usize>>);

type Piece = Result<Frame<Bytes>, hyper::Error>;

impl Default for Watches {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Watches {
    /// From now on no event of `resource` comes through, in watches that are there and in those that begin.
    pub(super) fn hold(&self, resource: &str) {
        self.0.send_modify(|held| {
            held.entry(resource.to_owned()).or_default();
        });
    }

    /// Everything that was kept comes through. Gives how many pieces of a stream that was: at least one for each event.
    pub(super) fn release(&self, resource: &str) -> usize {
        let mut kept = 0;
        self.0.send_modify(|held| kept = held.remove(resource).unwrap_or_default());
        kept
    }

    /// How many pieces are kept at the moment.
    pub(super) fn kept(&self, resource: &str) -> usize {
        self.0.borrow().get(resource).copied().unwrap_or_default()
    }

    /// The events of one watch, passed on as they come unless they are held back.
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
            // Looked at after the piece has come: it may have been a long time.
            held.wait_for(|held| !held.contains_key(&resource)).await.ok()?;
            Some((piece, (kept, held, resource)))
        });
        StreamBody::new(pieces).boxed_unsync()
    }
}
