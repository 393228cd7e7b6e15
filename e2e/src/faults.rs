//! Faults at exact places: at the n-th write of our manager, at calls of a certain kind, or in one of its watches.
//!
//! A [`FaultyManager`] reaches the API server through a proxy of its own. The proxy numbers the manager's writes in the
//! order in which they reach the server, one at a time, and applies [`Rule`]s to them: it kills the manager before or
//! after a write, loses an answer, answers in the server's place, or delays. It also holds back single watches, which
//! makes a cache stale. A killed manager starts again at once, as a kubelet would start it.
//!
//! An [`EtcdProxy`] does the same to the manager's requests to etcd members.
//!
//! Writes of events and leases have no number: nothing depends on whether one succeeds.
//!
//! A [`Sweep`] repeats a story once for every [`Place`], and shows that it ends the same way each time.

mod answer;
mod api_call;
mod api_proxy;
mod etcd_call;
mod etcd_proxy;
mod etcd_tls;
mod gate;
mod manager;
mod place;
mod redirect;
mod relay;
mod snapshot;
mod sweep;
mod victim;
mod watches;

pub use api_call::{ApiCall, Verb};
pub use etcd_call::EtcdCall;
pub use etcd_proxy::{EtcdCalls, EtcdProxy};
pub use gate::{Call, Fate, Fault, Rule, Strike, Write, Writes};
pub use manager::FaultyManager;
pub use place::{At, How, Place};
pub use snapshot::Snapshot;
pub use sweep::{Ending, Sweep};
