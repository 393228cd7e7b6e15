//! Each list of endpoints that we write into a control plane causes a rollout, so each list needs a cause: a changed
//! spec of the EtcdCluster, a Machine that a person deleted, or a fault.
//!
//! A cause is a credit for one list, at any later time, and each list takes the oldest credit. There is one credit for
//! a new EtcdCluster; for a changed spec, as many as the times that its rollout may tell the control plane; one for a
//! Machine that a person deletes; and one for each Machine that a fault of the scenario names. The end of a fault is
//! not a credit, because a member that comes back has the endpoint that it had before. So if a fault has no
//! consequences, one list without a cause is not found.

use super::{Finding, Moment, Rule, Write};
use crate::observer::record::{Etcd, Event};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Rollouts {
    /// When something happened that may lead to new endpoints, by cluster.
    causes: BTreeMap<String, Vec<Timestamp>>,
    /// The Cluster's EtcdCluster, by the name of the Cluster's control plane.
    etcds: BTreeMap<String, String>,
}

impl Rule for Rollouts {
    fn name(&self) -> &'static str {
        "one more control-plane rollout"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        match &moment.line.event {
            Event::Etcd(etcd) => {
                let before = moment.before.etcds.get(&etcd.name);
                if before.is_none_or(|view| view.object.uid != etcd.uid || view.object.spec != etcd.spec) {
                    let times = if before.is_some() { most(etcd) } else { 1 };
                    for _ in 0..times {
                        self.cause(&etcd.name, moment.now());
                    }
                }
            }
            Event::ControlPlane(plane) => {
                let mut etcds = moment.after.etcds.iter();
                if let Some((name, _)) = etcds.find(|(_, view)| view.object.cluster == plane.cluster) {
                    self.etcds.insert(plane.name.clone(), name.clone());
                }
            }
            Event::Fault(fault) if !fault.over => {
                let machines = fault.machines.iter().filter_map(|name| moment.before.machines.get(name));
                let etcds: Vec<String> = machines.map(|machine| machine.etcd.clone()).collect();
                etcds.iter().for_each(|etcd| self.cause(etcd, moment.now()));
            }
            Event::Machine(machine) if machine.deleting && !machine.etcd.is_empty() => {
                let before = moment.before.machines.get(&machine.name);
                let was_deleted = before.is_some_and(|before| before.deleting && before.uid == machine.uid);
                if !was_deleted && by_hand(moment.writes, &machine.name, moment.now()) {
                    self.cause(&machine.etcd, moment.now());
                }
            }
            Event::Ended => return self.judge(moment),
            _ => {}
        }
        Vec::new()
    }
}

/// How often the control plane may be told in a rollout: once; twice if there is room for fewer than f + 1 additional
/// Machines; three times if there is room for none.
fn most(etcd: &Etcd) -> usize {
    match etcd.max_surge() {
        Some(0) => 3,
        Some(most) if most <= etcd.replicas / 2 => 2,
        _ => 1,
    }
}

/// Whether a person had deleted this Machine by now.
fn by_hand(writes: &[Write], machine: &str, now: Timestamp) -> bool {
    let is_it = |write: &&Write| write.verb == "delete" && write.resource == "machines" && write.name == machine;
    writes.iter().filter(is_it).any(|write| write.by_hand && write.at <= now)
}

impl Rollouts {
    fn cause(&mut self, etcd: &str, at: Timestamp) {
        self.causes.entry(etcd.to_owned()).or_default().push(at);
    }

    /// Judges all lists that we wrote, in their order. Each list takes the oldest cause that is left.
    fn judge(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let mut written: BTreeMap<&str, (Vec<&Write>, &str)> = BTreeMap::new();
        for write in moment.writes.iter().filter(|write| write.ours && write.is_done()) {
            let (Some(endpoints), Some(etcd)) = (&write.endpoints, self.etcds.get(&write.name)) else { continue };
            let (writes, _) = written.entry(&write.name).or_insert_with(|| (Vec::new(), etcd));
            // A list that a person has overwritten is written again, which is the same rollout.
            if writes.last().is_none_or(|last| last.endpoints.as_ref() != Some(endpoints)) {
                writes.push(write);
            }
        }
        let mut findings = Vec::new();
        for (plane, (writes, etcd)) in written {
            let mut causes = self.causes.get(etcd).map(Vec::as_slice).unwrap_or_default().iter().peekable();
            for write in writes {
                if causes.next_if(|cause| **cause <= write.at).is_none() {
                    let list = write.endpoints.as_deref().unwrap_or_default();
                    let what = format!("endpoints {list:?} were written into {plane}, with nothing new to cause that");
                    findings.push(Finding::about(etcd, "", what).since(write.at));
                }
            }
        }
        findings
    }
}
