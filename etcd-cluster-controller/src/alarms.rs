//! etcd's alarms, described for people. An alarm belongs to the whole cluster, and every member reports it, so it makes
//! no member unhealthy.

use crate::observation::hex;
use crate::observation::probe::{Alarm, alarms};
use crate::roster::{Roster, Seat};
use std::collections::{BTreeMap, BTreeSet};

/// The database has reached its quota.
pub const NO_SPACE: &str = "NOSPACE";
/// Members have different data.
pub const CORRUPT: &str = "CORRUPT";

/// The alarms that are reported by voters that answer a linearizable read. `None`: no voter answers.
pub(crate) fn raised<'a>(roster: &'a Roster<'_>) -> Option<BTreeSet<&'a Alarm>> {
    let well = roster.voters().filter(|seat| seat.is_well());
    alarms(well.filter_map(|seat| seat.probe?.report()))
}

/// Why it is not known whether there are alarms: the state of each voter, and since when.
pub(crate) fn why_unknown(roster: &Roster<'_>) -> String {
    let voters: Vec<String> = roster.voters().map(Seat::describe_check).collect();
    if voters.is_empty() {
        return "etcd's alarms are not known before there is a voter that reports them".to_owned();
    }
    format!("no voter has answered as a voter, so etcd's alarms are not known: {}", voters.join("; "))
}

/// Which members the alarms are about, and how to end the alarms.
pub(crate) fn describe(roster: &Roster<'_>, alarms: &BTreeSet<&Alarm>) -> String {
    let mut by_kind: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for alarm in alarms {
        by_kind.entry(&alarm.kind).or_default().push(member(roster, alarm.member_id));
    }
    let one = |(kind, members): (&str, Vec<String>)| {
        let (cause, remedy) = match kind {
            NO_SPACE => (
                "the database has reached its quota (quotaBackendBytes), and etcd refuses writes",
                "compact etcd to the revision that `etcdctl endpoint status --write-out=json` shows (etcdctl compact REVISION), defragment every member (etcdctl defrag --cluster --command-timeout=10m), and disarm the alarm: etcdctl alarm disarm",
            ),
            CORRUPT => (
                "members have different data, and etcd refuses writes",
                "find out whose data is wrong (etcdctl endpoint hashkv --cluster --command-timeout=10m), which may be the leader's instead, delete the Machine of that member to have it replaced, and disarm the alarm: etcdctl alarm disarm",
            ),
            _ => ("this controller does not know it", "look it up in etcd's documentation"),
        };
        format!("alarm {kind} of {}: {cause}. To end it, {remedy}", members.join(", "))
    };
    let described: Vec<String> = by_kind.into_iter().map(one).collect();
    described.join("; ")
}

/// A member with its address: a person may know the address, and not the name that etcd has for the member.
fn member(roster: &Roster<'_>, id: u64) -> String {
    let url = |seat: &Seat<'_>| seat.probe.map(|probe| format!(", {}", probe.url)).unwrap_or_default();
    match roster.by_member(id) {
        Some(seat) => format!("member {} ({}{})", seat.name(), hex(id), url(seat)),
        None if id == 0 => "a member that etcd does not name".to_owned(),
        None => format!("member {}, which is not in the member list", hex(id)),
    }
}
