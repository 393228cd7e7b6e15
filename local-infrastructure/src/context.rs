//! What a reconcile works with.

use crate::{address::Subnet, crd::LocalMachine, events::Events as LocalEvents, machine::Machines};
use controller_support::{Cached, Events, Shared, WriteCache};
use std::{path::PathBuf, sync::Arc};

/// What machines are made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machines of the state directory.
    pub machines: Machines,
    /// The image that machines start from.
    pub image_dir: PathBuf,
    /// The bridge that machines are plugged into.
    pub bridge: String,
    /// The bridge's network.
    pub subnet: Subnet,
    /// This program.
    pub program: PathBuf,
}

/// What a reconcile of a LocalMachine works with.
pub(crate) struct Context {
    pub(crate) shared: Shared,
    pub(crate) settings: Arc<Settings>,
    pub(crate) machines: Cached,
    pub(crate) clusters: Cached,
    pub(crate) local_events: LocalEvents,
    pub(crate) events: Events,
    pub(crate) written: WriteCache<LocalMachine>,
}
