//! What every controller of this project shares: how it is run, how it reads objects of other providers, and how it
//! writes. Nothing here decides anything about etcd.

pub mod apply;
pub mod backoff;
pub mod cache;
pub mod client;
pub mod deferred;
pub mod error;
pub mod events;
pub mod external;
pub mod followed;
pub mod foreign;
pub mod kinds;
pub mod metrics;
pub mod pki;
pub mod plan;
pub mod run;
pub mod scope;
pub mod ttl_cache;
pub mod write_cache;

pub use cache::{BY_CONTROLLER_UID, Cached, Caches, Index};
pub use deferred::DeferredStatuses;
pub use error::{Error, Result, ResultExt};
pub use events::Events;
pub use followed::Followed;
pub use kinds::{KindError, Kinds};
pub use metrics::Metrics;
pub use plan::{Hold, Plan};
pub use run::{Failures, Shared, Shutdown, run_controller};
pub use scope::Scope;
pub use ttl_cache::TtlCache;
pub use write_cache::WriteCache;
