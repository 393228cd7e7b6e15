//! A bed of containers under observation. Rules and record are those of any other bed, but here the methods that make
//! faults report them themselves.

use super::DockerBed;
use super::volumes::Volumes;
use crate::bed::ClusterHandle;
use crate::observer::record::{ApiServer, Line};
use crate::observer::{Insight, Observation, Silence};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a machine may take until its member answers again: systemd starts in it, on a computer that is busy with
/// everything else.
const RECOVERY: Duration = Duration::from_secs(120);

/// The observation of a scenario, and the Machines, `<namespace>/<name>`, whose members never come back.
pub(super) struct Observed {
    observation: Observation,
    lost: Mutex<BTreeSet<String>>,
}

impl DockerBed {
    /// Begins to observe everything that happens here, for the scenario of this name.
    ///
    /// # Errors
    /// When the record cannot be created.
    pub fn observe(&mut self, scenario: &str) -> Result<()> {
        let volumes = Volumes::below(self.daemon.data_root());
        // A container has the name of its Machine, and no other container has that name.
        let data = move |machine: &str| volumes.data(machine.split_once('/')?.1);
        // What a container has printed goes with it.
        let insight = Insight { data: Arc::new(data), keep_logs: Arc::new(|_| {}) };
        let observation = Observation::begin(scenario, &self.world, &self.plane, insight)?;
        self.observed = Some(Observed { observation, lost: Mutex::default() });
        Ok(())
    }

    /// Ends the observation, if there is one, writes a timeline beside the record, and judges the record.
    ///
    /// # Errors
    /// With the violations that were found; or when the record is not whole.
    pub fn end_observation(&mut self) -> Result<()> {
        self.observed.take().map_or(Ok(()), |observed| observed.observation.end(&self.plane))
    }

    /// What was observed until now. Empty without an observation.
    ///
    /// # Errors
    /// When a part of the record could not be written to its file.
    pub fn observed_so_far(&self) -> Result<Vec<Line>> {
        self.observed.as_ref().map_or_else(|| Ok(Vec::new()), |observed| observed.observation.observer().lines())
    }

    /// Reports a Kubernetes cluster that works. From now on, the API server to which the load balancer leads is asked
    /// whether it is ready. The configs of the API servers say which endpoints each of them has.
    pub(super) fn observe_api_server(&self, handle: &ClusterHandle, kubeconfig: &Path) {
        if let Some(observed) = &self.observed {
            let cluster = format!("{}/{}", handle.namespace, handle.cluster);
            let name = format!("{cluster} (load balancer)");
            let told = ApiServer { name, cluster, ..ApiServer::default() };
            observed.observation.observer().servers().runs(told, kubeconfig);
        }
    }

    /// Records an action of the scenario that is not a fault of a machine, such as ending a manager, so that the
    /// timeline shows it. Without an observation, nothing happens.
    pub fn note(&self, what: &str) {
        if let Some(observed) = &self.observed {
            observed.observation.observer().notes().note(what);
        }
    }

    /// Records a fault of these containers: from now on their members may be silent. Call it before the fault is made,
    /// if the fault is not made by a method of this bed.
    pub fn fault(&self, what: &str, containers: &[&str]) {
        if let Some(observed) = &self.observed {
            let machines = observed.machines(containers);
            observed.observation.observer().fault(what, &machines, Silence::Lasting);
        }
    }

    /// Records a fault of these containers after which nothing brings their members back.
    pub fn fault_for_good(&self, what: &str, containers: &[&str]) {
        if let Some(observed) = &self.observed {
            observed.lost.lock().unwrap_or_else(PoisonError::into_inner).extend(observed.machines(containers));
            self.fault(what, containers);
        }
    }

    /// Records that a fault of these containers is over: their members have to answer again, except those that are lost
    /// for good.
    pub fn fault_is_over(&self, what: &str, containers: &[&str]) {
        if let Some(observed) = &self.observed {
            let mut machines = observed.machines(containers);
            let lost = observed.lost.lock().unwrap_or_else(PoisonError::into_inner);
            machines.retain(|machine| !lost.contains(machine));
            observed.observation.observer().over(what, &machines, RECOVERY);
        }
    }
}

impl Observed {
    /// The Machines of these containers. Containers without a Machine, such as load balancers, are left out.
    fn machines(&self, containers: &[&str]) -> Vec<String> {
        let observer = self.observation.observer();
        containers.iter().flat_map(|container| observer.machines_called(container)).collect()
    }
}
