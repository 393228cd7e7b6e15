//! Until something happens to an etcd cluster, it gets no Machine beyond the wanted number, and we delete no Machine
//! whose member votes. What may happen is a changed spec, a fault of the scenario, or any write of a person in the
//! namespace. What is right after that depends on what has happened, and scenarios check it themselves.

use super::{Finding, Moment, Rule, Write};
use crate::observer::record::{Etcd, Event, Machine, namespace};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How much later than its consequence a cause may be seen, because each kind of object has its own watch.
const SEEN: SignedDuration = SignedDuration::from_secs(2);

#[derive(Default)]
pub(super) struct Machines {
    /// EtcdClusters that have been seen.
    known: BTreeSet<String>,
    /// When the first Machine of each EtcdCluster was seen.
    begun: BTreeMap<String, Timestamp>,
    /// When a spec has changed or a scenario has made a fault, and in which namespace. An empty name means all
    /// namespaces.
    happened: Vec<(Timestamp, String)>,
    /// What is wrong unless it has a cause: when it was, and what was found.
    suspected: Vec<(Timestamp, Finding)>,
}

impl Rule for Machines {
    fn name(&self) -> &'static str {
        "made or deleted without a cause"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        match &moment.line.event {
            Event::Etcd(etcd) => self.etcd(etcd, moment),
            Event::Fault(fault) if fault.machines.is_empty() => self.happened.push((moment.now(), String::new())),
            Event::Fault(fault) => {
                let all = fault.machines.iter().map(|machine| (moment.now(), namespace(machine).to_owned()));
                self.happened.extend(all);
            }
            Event::Machine(machine) if !machine.etcd.is_empty() => self.machine(machine, moment),
            Event::Ended => {
                let suspected = std::mem::take(&mut self.suspected);
                let found = suspected.into_iter().filter(|(at, finding)| !self.has_cause(*at, finding, moment.writes));
                return found.map(|(at, finding)| finding.since(at)).collect();
            }
            _ => {}
        }
        Vec::new()
    }
}

impl Machines {
    /// Records a changed spec, or another EtcdCluster of the same name, as a cause.
    fn etcd(&mut self, etcd: &Etcd, moment: &Moment<'_>) {
        let is_new = self.known.insert(etcd.name.clone());
        let before = moment.before.etcds.get(&etcd.name).map(|view| &view.object);
        let is_same = before.is_some_and(|before| before.uid == etcd.uid && before.spec == etcd.spec);
        if !is_new && !is_same {
            self.happened.push((moment.now(), namespace(&etcd.name).to_owned()));
        }
    }

    fn machine(&mut self, machine: &Machine, moment: &Moment<'_>) {
        self.begun.entry(machine.etcd.clone()).or_insert(moment.now());
        let view = moment.after.etcds.get(&machine.etcd).filter(|view| !moment.after.is_ending(view));
        let Some(view) = view else { return };
        let before = moment.before.machines.get(&machine.name).filter(|before| before.uid == machine.uid);
        let votes = || view.voters().any(|voter| view.machine_of(voter) == machine.name);
        let what = if machine.deleting {
            let is_seen = before.is_some_and(|before| before.deleting);
            let by_us = || moment.writes.iter().any(|write| deletes(write, machine) && write.at <= moment.now());
            if is_seen || !votes() || !by_us() {
                return;
            }
            "we deleted it, and its member votes".to_owned()
        } else {
            let all = moment.after.machines.values();
            let all = all.filter(|other| other.etcd == machine.etcd && !other.deleting).count();
            if before.is_some() || all <= view.object.replicas {
                return;
            }
            format!("it makes {all} Machines, and {} are wanted", view.object.replicas)
        };
        let what = format!("{what}; nothing has happened to the cluster before");
        self.suspected.push((moment.now(), Finding::about(&machine.etcd, &machine.name, what)));
    }

    fn has_cause(&self, at: Timestamp, finding: &Finding, writes: &[Write]) -> bool {
        let is_there = |place: &str| place.is_empty() || place == namespace(&finding.etcd);
        let begun = self.begun.get(&finding.etcd).copied().unwrap_or(at);
        let mut happened = self.happened.iter();
        let mut by_hand = writes.iter().filter(|write| write.by_hand && write.at > begun);
        happened.any(|(when, place)| *when <= at + SEEN && is_there(place))
            || by_hand.any(|write| write.at <= at + SEEN && is_there(namespace(&write.name)))
    }
}

/// Whether this write is our deletion of this Machine.
fn deletes(write: &Write, machine: &Machine) -> bool {
    let is_it = write.verb == "delete" && write.resource == "machines" && write.name == machine.name;
    is_it && write.ours && write.is_done()
}
