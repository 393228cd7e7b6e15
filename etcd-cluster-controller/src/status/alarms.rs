//! What conditions report about etcd's alarms.

use crate::alarms::{CORRUPT, NO_SPACE, describe, raised, why_unknown};
use crate::observation::probe::Alarm;
use crate::plan::View;
use api::conditions::{self as c, Draft, reasons};
use std::collections::BTreeSet;

/// The condition that says whether an alarm is raised.
pub(super) fn no_alarms(view: &View<'_>) -> Draft {
    match raised(&view.roster) {
        Some(alarms) if alarms.is_empty() => Draft::new(c::NO_ALARMS, true, reasons::NO_ALARMS, ""),
        Some(alarms) => Draft::new(c::NO_ALARMS, false, reason(&alarms), describe(&view.roster, &alarms)),
        None => Draft::unknown(c::NO_ALARMS, reasons::HEALTH_UNKNOWN, why_unknown(&view.roster)),
    }
}

/// The reason and the message of alarms because of which etcd refuses writes.
pub(super) fn read_only(view: &View<'_>) -> Option<(&'static str, String)> {
    let alarms = raised(&view.roster)?;
    let reason = reason(&alarms);
    (!alarms.is_empty() && reason != reasons::ALARM_RAISED).then(|| (reason, describe(&view.roster, &alarms)))
}

/// The reason for a set of alarms. Corruption comes first, because it cannot be undone.
fn reason(alarms: &BTreeSet<&Alarm>) -> &'static str {
    let has = |kind: &str| alarms.iter().any(|alarm| alarm.kind == kind);
    match () {
        () if has(CORRUPT) => reasons::DATA_CORRUPT,
        () if has(NO_SPACE) => reasons::NO_SPACE,
        () => reasons::ALARM_RAISED,
    }
}
