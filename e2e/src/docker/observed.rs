//! A bed of containers under observation. Rules and record are those of any other bed; here the verbs themselves tell
//! of the faults that they make.

use super::DockerBed;
use super::volumes::Volumes;
use crate::bed::ClusterHandle;
use crate::observer::record::{ApiServer, Line};
use crate::observer::{Observation, Silence};
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a machine may take until its member answers again: systemd starts in it, beside everything else that this
/// computer does.
const RECOVERY: Duration = Duration::from_secs(120);

/// The observation of a scenario, and the Machines, `<namespace>/<name>`, that nothing brings back.
pub(super) struct Observed {
    observation: Observation,
    lost: Mutex<BTreeSet<String>>,
}

impl DockerBed {
    /// Begins to observe everything that happens here, for the scenario of this name.
    ///
    /// # Errors
    /// When there can be no record.
    pub fn observe(&mut self, scenario: &str) -> Result<()> {
        let volumes = Volumes::below(self.daemon.data_root());
        // A container has the name of its Machine, and no other has that.
        let data = move |machine: &str| volumes.data(machine.split_once('/')?.1);
        let observation = Observation::begin(scenario, &self.world, &self.plane, Arc::new(data))?;
        self.observed = Some(Observed { observation, lost: Mutex::default() });
        Ok(())
    }

    /// Ends the observation, if there is one, and judges the record. Where something is wrong, or the scenario has
    /// failed, a timeline is written beside the record.
    ///
    /// # Errors
    /// With the violations that were found; or when there is no whole record.
    pub fn end_observation(&mut self, failed: bool) -> Result<()> {
        self.observed.take().map_or(Ok(()), |observed| observed.observation.end(&self.plane, failed))
    }

    /// What was observed until now; nothing where nobody observes.
    ///
    /// # Errors
    /// When a part of it did not get into the record's file.
    pub fn observed_so_far(&self) -> Result<Vec<Line>> {
        self.observed.as_ref().map_or_else(|| Ok(Vec::new()), |observed| observed.observation.observer().lines())
    }

    /// A Kubernetes cluster works: from now on it is asked whether its API server is ready, whichever the load balancer
    /// leads to. Which endpoints each of them has, their configurations say.
    pub(super) fn observe_api_server(&self, handle: &ClusterHandle, kubeconfig: &Path) {
        if let Some(observed) = &self.observed {
            let cluster = format!("{}/{}", handle.namespace, handle.cluster);
            let name = format!("{cluster} (load balancer)");
            let told = ApiServer { name, cluster, ..ApiServer::default() };
            observed.observation.observer().servers().runs(told, kubeconfig);
        }
    }

    /// The scenario does something that is not a fault of a machine, such as ending a manager: it stands in the timeline.
    /// Nothing happens where nobody observes.
    pub fn note(&self, what: &str) {
        if let Some(observed) = &self.observed {
            observed.observation.observer().note(what);
        }
    }

    /// Something is done to these containers: from now on their members may be silent, or leave etcd without our doing.
    /// Told before it is done, by whoever does it with other means than the verbs of this bed.
    pub fn fault(&self, what: &str, containers: &[&str]) {
        if let Some(observed) = &self.observed {
            let machines = observed.machines(containers);
            observed.observation.observer().fault(what, &machines, Silence::Lasting);
        }
    }

    /// The same, and nothing that is done later will bring their members back.
    pub fn fault_for_good(&self, what: &str, containers: &[&str]) {
        if let Some(observed) = &self.observed {
            observed.lost.lock().unwrap_or_else(PoisonError::into_inner).extend(observed.machines(containers));
            self.fault(what, containers);
        }
    }

    /// What was done to these containers is over: their members are to answer again, but for those that are lost for
    /// good.
    pub fn fault_is_over(&self, what: &str, containers: &[&str]) {
        if let Some(observed) = &self.observed {
            let mut machines = observed.machines(containers);
            let lost = observed.lost.lock().unwrap_or_else(PoisonError::into_inner);
            machines.retain(|machine| !lost.contains(machine));
            observed.observation.observer().fault(what, &machines, Silence::AtMost(RECOVERY));
        }
    }
}

impl Observed {
    /// The Machines of containers; nothing of those that are none, such as load balancers.
    fn machines(&self, containers: &[&str]) -> Vec<String> {
        let observer = self.observation.observer();
        containers.iter().flat_map(|container| observer.machines_called(container)).collect()
    }
}
