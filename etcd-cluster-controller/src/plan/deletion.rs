//! Deleting the EtcdCluster. It asks nothing of etcd, so it finishes in whatever state that is.

use super::{Plan, Step, wait};
use crate::observation::Observation;
use api::conditions::reasons;
use api::names;
use kube::ResourceExt;

/// Machines first, then the finalizer; Secrets and leftovers go with their owner.
pub(super) fn plan(seen: &Observation) -> Plan {
    let names: Vec<String> = seen.live_machines().map(|machine| machine.name.clone()).collect();
    if !names.is_empty() {
        return Plan::Do(Step::DeleteMachines { names });
    }
    if !seen.machines.is_empty() {
        let names: Vec<&str> = seen.machines.keys().map(String::as_str).collect();
        return wait(reasons::DELETING, format!("waiting for Machines {} to go", names.join(", ")));
    }
    if seen.etcd.finalizers().iter().any(|finalizer| finalizer == names::ETCD_CLUSTER_FINALIZER) {
        return Plan::Do(Step::RemoveFinalizer);
    }
    wait(reasons::DELETING, "")
}
