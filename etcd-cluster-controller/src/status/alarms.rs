//! Alarms of etcd, for people. An alarm is the whole cluster's, and every member reports it: it makes no member unhealthy, and
//! nothing is removed or held up for it.

use crate::observation::hex;
use crate::observation::probe::{Alarm, alarms};
use crate::plan::View;
use crate::roster::Seat;
use api::conditions::{self as c, Draft, reasons};
use std::collections::{BTreeMap, BTreeSet};

/// The condition that says whether there are any.
pub(super) fn no_alarms(view: &View<'_>) -> Draft {
    match raised(view) {
        Some(alarms) if alarms.is_empty() => Draft::new(c::NO_ALARMS, true, reasons::NO_ALARMS, ""),
        Some(alarms) => Draft::new(c::NO_ALARMS, false, reason(&alarms), describe(view, &alarms)),
        None => Draft::unknown(c::NO_ALARMS, reasons::HEALTH_UNKNOWN, "no voter answers that could tell of alarms"),
    }
}

/// The reason and the text of an alarm for which etcd refuses writes.
pub(super) fn read_only(view: &View<'_>) -> Option<(&'static str, String)> {
    let alarms = raised(view)?;
    let reason = reason(&alarms);
    (!alarms.is_empty() && reason != reasons::ALARM_RAISED).then(|| (reason, describe(view, &alarms)))
}

/// What the voters report that answer a linearizable read. `None`: no voter answers.
fn raised<'a>(view: &'a View<'_>) -> Option<BTreeSet<&'a Alarm>> {
    let well = view.roster.voters().filter(|seat| seat.is_well());
    alarms(well.filter_map(|seat| seat.probe?.report()))
}

/// Corruption first: it cannot be undone.
fn reason(alarms: &BTreeSet<&Alarm>) -> &'static str {
    let has = |kind: &str| alarms.iter().any(|alarm| alarm.kind == kind);
    match () {
        () if has("CORRUPT") => reasons::DATA_CORRUPT,
        () if has("NOSPACE") => reasons::NO_SPACE,
        () => reasons::ALARM_RAISED,
    }
}

fn describe(view: &View<'_>, alarms: &BTreeSet<&Alarm>) -> String {
    let mut by_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for alarm in alarms {
        by_kind.entry(&alarm.kind).or_default().push(member(view, alarm.member_id));
    }
    let one = |(kind, members): (&str, Vec<String>)| {
        let (cause, remedy) = match kind {
            "NOSPACE" => (
                "the database has reached its quota (quotaBackendBytes), and etcd refuses writes",
                "compact etcd to the revision that `etcdctl endpoint status --write-out=json` shows (etcdctl compact REVISION), defragment every member (etcdctl defrag --cluster), and disarm the alarm: etcdctl alarm disarm",
            ),
            "CORRUPT" => (
                "members have different data, and etcd refuses writes",
                "find out whose data is wrong (etcdctl endpoint hashkv --cluster), delete the Machine of that member to have it replaced, and disarm the alarm: etcdctl alarm disarm",
            ),
            _ => ("this controller does not know it", "look it up in etcd's documentation"),
        };
        format!("alarm {kind} of {}: {cause}. To end it, {remedy}", members.join(", "))
    };
    let described: Vec<String> = by_kind.into_iter().map(one).collect();
    described.join("; ")
}

/// A member with its address, as etcd may know it under a name that nobody else does.
fn member(view: &View<'_>, id: u64) -> String {
    let url = |seat: &Seat<'_>| seat.probe.map(|probe| format!(", {}", probe.url)).unwrap_or_default();
    match view.roster.by_member(id) {
        Some(seat) => format!("member {} ({}{})", seat.name(), hex(id), url(seat)),
        None if id == 0 => "a member that etcd does not name".to_owned(),
        None => format!("member {}, which is not in the member list", hex(id)),
    }
}
