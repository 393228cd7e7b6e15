//! Faults at exact places: at the n-th write of our manager, at calls of a kind, in one of its watches.
//!
//! A [`FaultyManager`] reaches the API server through a proxy of its own. The proxy numbers the manager's writes in the order
//! in which they reach the server, one at a time, and does to them what [`Rule`]s say: kills the manager before or after one,
//! loses an answer, answers in the server's place, delays. It also holds back single watches, which makes a cache stale. What
//! is killed is started again at once, as a kubelet would.
//!
//! An [`EtcdProxy`] does the same to what it asks etcd members.
//!
//! Events and leases have no number: nothing depends on whether one is written.
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
