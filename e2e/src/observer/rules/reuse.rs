//! No name is used twice. Bootstrap data, infrastructure and member have the name of their Machine, so what is left of
//! an earlier Machine could be mistaken for a part of a later one.

use super::{Finding, Moment, Rule};
use crate::observer::record::Event;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Reuse {
    /// UID of the last Machine that had a name, by the UID of its EtcdCluster and the name.
    uids: BTreeMap<(String, String), String>,
}

impl Rule for Reuse {
    fn name(&self) -> &'static str {
        "name used again"
    }

    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding> {
        let Event::Machine(machine) = &moment.line.event else { return Vec::new() };
        // An EtcdCluster that is deleted and applied again starts with the first name again.
        let etcd = moment.after.etcds.get(&machine.etcd).filter(|view| !moment.after.is_ending(view));
        let Some(etcd) = etcd else { return Vec::new() };
        let key = (etcd.object.uid.clone(), machine.name.clone());
        let before = self.uids.insert(key, machine.uid.clone());
        let Some(before) = before.filter(|before| *before != machine.uid) else { return Vec::new() };
        let what = format!("the Machine with UID {} has the name of the one with UID {before}", machine.uid);
        vec![Finding::about(&machine.etcd, &machine.name, what)]
    }
}
