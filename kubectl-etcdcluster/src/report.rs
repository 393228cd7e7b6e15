//! The state of an EtcdCluster, derived from a snapshot: `status -o json` prints it, and the tree is made from it.
//! Pure.
//!
//! `docs/kubectl-plugin.md` documents the structure. Fields may be added to it, but not renamed or removed.

mod conditions;
mod deadlines;
mod phase;
mod seat;

pub use conditions::{Trouble, others};
pub use deadlines::Deadline;
pub use phase::Phase;
pub(crate) use seat::hooks;
pub use seat::{Deleting, Member, Role, Seat};

use crate::snapshot::Snapshot;
use etcd_cluster_controller::build::version;
use kube::ResourceExt;
use serde::Serialize;

/// The state of an EtcdCluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Cluster that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The state in one word.
    pub phase: Phase,
    /// Numbers of Machines and members.
    pub replicas: Replicas,
    /// Lowest etcd version that a member runs; empty before the first one has come up.
    pub version: String,
    /// The etcd version that new members get.
    pub wanted_version: String,
    /// Endpoints that are published to the control plane.
    pub endpoints: Vec<String>,
    /// The conditions that do not have their normal status.
    pub conditions: Vec<Trouble>,
    /// The Machines and members, in the order in which they were made.
    pub seats: Vec<Seat>,
    /// The deadlines, the next one first.
    pub deadlines: Vec<Deadline>,
    /// What this report lacks, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Numbers of Machines and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// The wanted number of members.
    pub wanted: i32,
    /// The number of Machines, including those that are being deleted.
    pub machines: usize,
    /// The number of healthy voters.
    pub ready: i32,
    /// The number of Machines that match the spec, without those that are being deleted.
    pub up_to_date: i32,
}

impl Report {
    /// The report on a snapshot.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Self {
        let etcd = &snapshot.etcd;
        let status = etcd.status.clone().unwrap_or_default();
        let conditions = conditions::troubles(&status.conditions);
        let seats = seat::seats(snapshot, &conditions);
        Self {
            namespace: etcd.namespace().unwrap_or_default(),
            name: etcd.name_any(),
            cluster: snapshot.cluster.as_ref().map(|cluster| cluster.name.clone()),
            phase: phase::phase(snapshot, &conditions),
            replicas: Replicas {
                wanted: etcd.spec.replicas,
                machines: snapshot.machines.len(),
                ready: status.ready_replicas,
                up_to_date: status.updated_replicas,
            },
            version: status.version.clone(),
            wanted_version: version(etcd).trim_start_matches('v').to_owned(),
            endpoints: status.endpoints.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect(),
            deadlines: deadlines::deadlines(snapshot, &conditions),
            notes: notes(snapshot),
            conditions,
            seats,
        }
    }

    /// The condition that matters most; nothing if all is well.
    #[must_use]
    pub fn hold(&self) -> Option<&Trouble> {
        self.conditions.first()
    }
}

fn notes(snapshot: &Snapshot) -> Vec<String> {
    let seen = snapshot.etcd.status.as_ref().and_then(|status| status.observed_generation);
    let mut notes = Vec::new();
    match (seen, snapshot.etcd.metadata.generation) {
        (None, _) => notes.push("no controller has reported on it yet: does the manager run?".to_owned()),
        (Some(seen), Some(generation)) if seen < generation => {
            notes.push(format!("the controller has yet to see generation {generation} of the spec"));
        }
        _ => {}
    }
    notes.extend(snapshot.unread.iter().map(|what| format!("not read: {what}")));
    notes
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use crate::report::{Phase, Report};
    use serde_json::Value;
    use std::collections::BTreeSet;

    #[test]
    fn the_documented_structure_is_printed() {
        let report = Report::new(&fixture::one_down());
        insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    }

    fn keys(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                found.insert(key.clone());
                keys(value, found);
            }),
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_field_and_phase_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kubectl-plugin.md");
        let page = std::fs::read_to_string(page).unwrap();
        let mut words = BTreeSet::new();
        for snapshot in [fixture::one_down(), fixture::rolling(), fixture::leaving(), fixture::marked()] {
            keys(&serde_json::to_value(Report::new(&snapshot)).unwrap(), &mut words);
        }
        assert!(words.len() > 30, "{words:?}");
        let (unknown, not_ready) = (Phase::Unknown, Phase::NotReady);
        let going = [unknown, Phase::Deleting, Phase::Paused, Phase::Starting, Phase::Unavailable, Phase::Replacing];
        let scaled = [Phase::Refused, Phase::RollingOut, Phase::ScalingUp, Phase::ScalingDown];
        let rest = [Phase::Degraded, not_ready, Phase::Ready];
        words.extend(going.iter().chain(&scaled).chain(&rest).map(ToString::to_string));
        let documented: BTreeSet<&str> = page.split(|sign: char| !sign.is_alphanumeric()).collect();
        let missing: Vec<&String> = words.iter().filter(|word| !documented.contains(word.as_str())).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_status_that_lags_is_told() {
        let mut snapshot = fixture::healthy();
        snapshot.etcd.metadata.generation = Some(9);
        assert_eq!(Report::new(&snapshot).notes, ["the controller has yet to see generation 9 of the spec"]);
        snapshot.etcd.status = None;
        let report = Report::new(&snapshot);
        assert_eq!(report.phase, Phase::Unknown);
        assert_eq!(report.notes, ["no controller has reported on it yet: does the manager run?"]);
    }
}
