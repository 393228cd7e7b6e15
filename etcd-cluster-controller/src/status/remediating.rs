//! The condition Remediating: which members are being replaced because of a failure or a mark, and which are to be
//! replaced.

use super::transitions::is_alarming;
use crate::plan::{View, marked_waits_for, replacement_under_way};
use api::conditions::{self as c, Draft, reasons};

pub(super) fn remediating(view: &View<'_>) -> Draft {
    let replaced = replacement_under_way(view);
    let replaced = replaced
        .map(|last| format!("the replacement of the member of Machine {} began at {:.0}", last.machine, last.time.0));
    let waiting = marked_waits_for(view).into_iter().map(|hold| (hold.reason, hold.message));
    let (all, messages): (Vec<_>, Vec<_>) =
        replaced.map(|message| (reasons::REPLACING_MEMBER, message)).into_iter().chain(waiting).unzip();
    match all.iter().find(|reason| is_alarming(reason)).or(all.first()) {
        Some(reason) => Draft::new(c::REMEDIATING, true, reason, messages.join("; ")),
        None => Draft::new(c::REMEDIATING, false, reasons::NOT_REMEDIATING, ""),
    }
}
