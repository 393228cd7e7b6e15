//! No name is used twice: bootstrap data, infrastructure and member go by the name of their Machine, and what is left of an
//! earlier one would be taken for a later one's.

use super::{Finding, Moment, Rule};
use crate::observer::record::Event;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Reuse {
    /// UID of the Machine that had a name last, by the UID of its EtcdCluster and the name.
    uids: BTreeMap<(String, String), String>,
}

impl Rule for Reuse {
    fn name(&self) -> &'static str {
        "name used again"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let Event::Machine(machine) = &moment.line.event else { return Vec::new() };
        // An EtcdCluster that is applied again counts from the beginning.
        let etcd = moment.after.etcds.get(&machine.etcd).filter(|view| !moment.after.is_ending(view));
        let Some(etcd) = etcd else { return Vec::new() };
        let key = (etcd.object.uid.clone(), machine.name.clone());
        let before = self.uids.insert(key, machine.uid.clone());
        let Some(before) = before.filter(|before| *before != machine.uid) else { return Vec::new() };
        let what = format!("the Machine with UID {} has the name of the one with UID {before}", machine.uid);
        vec![Finding::about(&machine.etcd, &machine.name, what)]
    }
}
