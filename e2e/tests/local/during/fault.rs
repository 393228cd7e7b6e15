//! What happens to a machine.

use super::Change;
use super::victim::{Found, Victim};
use crate::ill::CRASH;
use e2e::bed::illness::{end_slow_disk, fill_disk, show_kept_certificates, slow_disk};
use local_infrastructure::machine::{Machine, Result as Done, Way};

pub(super) type Action = fn(&Machine) -> Done<()>;

/// What happens to a machine.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) begins: Action,
    /// What ends it. Nothing brings a lost disk back.
    pub(crate) ends: Option<Action>,
    pub(super) needs: Needs,
    /// Whether a health check is certain to fail while the fault lasts.
    pub(super) is_seen: bool,
}

/// What a fault requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// The log of its etcd.
    Log,
    /// A copy of its data from before its last start.
    OlderCopy,
    /// Certificates that have expired, beside those that its etcd uses.
    Expired,
    /// A disk that can be filled.
    SmallDisk,
}

impl Fault {
    pub(crate) const fn new(name: &'static str, begins: Action, ends: Option<Action>) -> Self {
        Self { name, begins, ends, needs: Needs::Nothing, is_seen: true }
    }

    /// Whether the fault can happen to a victim of this kind. A newcomer was never started before, so it has no older
    /// copy.
    pub(super) fn fits(&self, victim: Victim) -> bool {
        self.needs != Needs::OlderCopy || victim != Victim::Newcomer
    }

    /// Whether the fault can happen to this machine yet.
    pub(super) fn can_strike(&self, found: &Found) -> bool {
        // A member that has reported its URL has a log.
        self.needs == Needs::Nothing || found.url.as_ref().is_some_and(|url| !url.is_empty())
    }
}

pub(crate) const KILLED: Fault = Fault::new("killed", Machine::kill, Some(Machine::power_on));
pub(crate) const FROZEN: Fault = Fault::new("frozen", Machine::freeze, Some(Machine::thaw));
pub(crate) const CUT_OFF: Fault = Fault::new("cut-off", Machine::cut_off, Some(Machine::reconnect));
pub(crate) const UNHEARD: Fault =
    Fault::new("unheard", |machine| machine.cut_off_one_way(Way::Out), Some(Machine::reconnect));
/// It receives nothing, but what it sends would arrive.
pub(crate) const DEAF: Fault = Fault::new("deaf", |machine| machine.cut_off_one_way(Way::In), Some(Machine::reconnect));
pub(crate) const ROBBED: Fault = Fault::new("robbed", Machine::rob_disk, None);
/// A byte of its log differs from what was written.
pub(crate) const CORRUPTED: Fault = Fault { needs: Needs::Log, ..Fault::new("corrupted", Machine::corrupt_log, None) };
/// It gets older data back.
pub(crate) const OLDER: Fault = Fault { needs: Needs::OlderCopy, ..Fault::new("older", Machine::put_back_data, None) };
/// Its server and peer certificates have expired, and its etcd starts again.
const EXPIRED: Fault = Fault { needs: Needs::Expired, ..Fault::new("expired", show_kept_certificates, None) };
/// No room is left on its disk, and its etcd crashes: without room it does not start again.
const FULL: Fault = Fault { needs: Needs::SmallDisk, ..Fault::new("full", fill_and_crash, None) };
/// Its etcd stands still most of the time, as with a disk that is slow.
pub(super) const SLOW: Fault = Fault { is_seen: false, ..Fault::new("slow", slow_disk, Some(end_slow_disk)) };

fn fill_and_crash(machine: &Machine) -> Done<()> {
    fill_disk(machine)?;
    machine.exec(&["sh", "-c", CRASH]).map(drop)
}

/// The faults that occur in every change.
pub(super) static FAULTS: [Fault; 7] = [KILLED, FROZEN, CUT_OFF, UNHEARD, ROBBED, CORRUPTED, OLDER];

/// The faults that occur in one change each. To the rules that decide about them, each looks like a fault that occurs
/// in every change.
pub(super) static ONCE: [(Change, &Fault, Victim); 3] = [
    (Change::Growth, &FULL, Victim::Small),
    (Change::ScaleDown, &DEAF, Victim::Follower),
    (Change::Departure, &EXPIRED, Victim::Leader),
];
