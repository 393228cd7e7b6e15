//! What every controller of this project shares: how it is run, how it reads objects of other providers, and how it
//! writes. Nothing here decides anything about etcd.

pub mod apply;
pub mod backoff;
pub mod cache;
pub mod error;
pub mod events;
pub mod freshest;
pub mod kinds;
pub mod loose;
pub mod metrics;
pub mod run;

pub use cache::{Cached, Caches};
pub use error::{Error, Result, ResultExt};
pub use events::Events;
pub use freshest::Freshest;
pub use kinds::{KindError, Kinds};
pub use metrics::Metrics;
pub use run::{Shared, Shutdown, drive};
