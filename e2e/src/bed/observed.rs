//! A bed under observation: one record for each scenario, judged at its end.

use super::{Bed, illness};
use crate::evidence::link_logs;
use crate::observer::record::{ApiServer, Line};
use crate::observer::{Expected, Insight, Notes, Observation, Servers, Silence};
use crate::plane::workload::WorkloadApiServer;
use anyhow::{Context, Result};
use api::endpoints::EndpointList;
use local_infrastructure::machine::Machine;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a member may take to answer again after the scenario has ended its fault.
const RECOVERY: Duration = Duration::from_secs(60);

impl Bed {
    /// Begins to observe everything that happens here, for the scenario of this name.
    ///
    /// # Errors
    /// When the record cannot be created.
    pub fn observe(&mut self, scenario: &str) -> Result<()> {
        let machines = self.machines.clone();
        let data = move |machine: &str| {
            let (namespace, name) = machine.split_once('/')?;
            machines.get(namespace, name).ok().and_then(|machine| illness::etcd_data(&machine))
        };
        let (machines, removed) = (self.machines.clone(), self.removed_machines()?);
        // Only the removed machines of this scenario matter.
        std::fs::remove_dir_all(&removed).context("forget earlier machines")?;
        let keep_logs = move |machine: &str| {
            let Some((namespace, name)) = machine.split_once('/') else { return };
            if let Ok(machine) = machines.get(namespace, name)
                && let Err(error) = keep_logs_in(&removed, &machine)
            {
                eprintln!("the logs of {namespace}/{name} are not kept: {error:#}");
            }
        };
        let insight = Insight { data: Arc::new(data), keep_logs: Arc::new(keep_logs) };
        self.observed = Some(Observation::begin(scenario, self.world(), &self.plane, insight)?);
        Ok(())
    }

    /// Keeps the logs of a machine that a scenario removes past its Machine.
    ///
    /// # Errors
    /// When they cannot be kept.
    pub fn keep_logs(&self, machine: &Machine) -> Result<()> {
        keep_logs_in(&self.removed_machines()?, machine)
    }

    /// Where the logs of machines are that were removed in this scenario, or are about to be.
    pub(super) fn removed_machines(&self) -> Result<PathBuf> {
        self.world().state("removed-machines")
    }

    /// Ends the observation, if there is one, writes a timeline beside the record, and judges the record.
    ///
    /// # Errors
    /// With the unexpected violations; or when an expected one is missing, or the record is not whole.
    pub fn end_observation(&mut self) -> Result<()> {
        self.observed.take().map_or(Ok(()), |observed| observed.end(&self.plane))
    }

    /// What was observed until now. Empty without an observation.
    ///
    /// # Errors
    /// When a part of the record could not be written to its file.
    pub fn observed_so_far(&self) -> Result<Vec<Line>> {
        self.observed.as_ref().map_or_else(|| Ok(Vec::new()), |observed| observed.observer().lines())
    }

    /// Records an action of the scenario that is not a fault of a machine, such as ending a manager, so that the
    /// timeline shows it. Without an observation, nothing happens.
    pub fn note(&self, what: &str) {
        self.notes().note(what);
    }

    /// For parts of the bed that note such actions while the scenario goes on.
    pub(crate) fn notes(&self) -> Notes {
        self.observed.as_ref().map(|observed| observed.observer().notes()).unwrap_or_default()
    }

    /// Records that the scenario makes a fault on these machines: from now on their members may be silent. Call it
    /// before the fault is made. Without an observation, nothing happens.
    pub fn fault(&self, what: &str, machines: &[&Machine], silence: Silence) {
        if let Some(observed) = &self.observed {
            observed.observer().fault(what, &names(machines), silence);
        }
    }

    /// Records that the scenario removes this machine's member from etcd itself. Call it before the member is removed.
    /// Without an observation, nothing happens.
    pub fn removal_by_hand(&self, machine: &Machine) {
        if let Some(observed) = &self.observed {
            let what = format!("{} is removed by hand", machine.spec().name);
            observed.observer().removal_by_hand(what, name(machine));
        }
    }

    /// Records a fault of a simulated machine, without an end.
    pub fn fault_of_simulated(&self, what: &str, namespace: &str, machine: &str) {
        if let Some(observed) = &self.observed {
            observed.observer().fault(what, &[format!("{namespace}/{machine}")], Silence::Lasting);
        }
    }

    /// Records that the scenario has ended its fault on these machines: their members have to answer again.
    pub fn fault_is_over(&self, what: &str, machines: &[&Machine]) {
        if let Some(observed) = &self.observed {
            observed.observer().over(what, &names(machines), RECOVERY);
        }
    }

    /// Records that the scenario provokes a violation of this rule with this machine. The scenario fails if the
    /// violation is not found.
    pub fn expect_violation(&self, rule: &'static str, machine: &Machine) {
        if let Some(observed) = &self.observed {
            let machine = name(machine);
            observed.observer().expect(Expected { rule, machine });
        }
    }

    /// Records that an API server of the Cluster `<namespace>/<name>` runs, with its endpoints.
    pub fn observe_api_server(&self, cluster: &str, server: &WorkloadApiServer) {
        self.observed_servers(cluster).runs(server);
    }

    /// For code that starts and ends API servers of the Cluster during a scenario, or pretends that they run.
    pub fn observed_servers(&self, cluster: &str) -> ObservedServers {
        let observer = self.observed.as_ref().map(|observed| observed.observer().servers().clone());
        ObservedServers { cluster: cluster.to_owned(), observer }
    }
}

/// Reports the API servers of one Cluster to the observer. Without an observation, nothing happens.
pub struct ObservedServers {
    cluster: String,
    observer: Option<Servers>,
}

impl ObservedServers {
    /// Reports that an API server runs, or is about to.
    pub(super) fn runs(&self, server: &WorkloadApiServer) {
        let Some(observer) = &self.observer else { return };
        let told = ApiServer {
            name: self.name(server.port),
            cluster: self.cluster.clone(),
            endpoints: server.endpoints.clone(),
            ready: None,
        };
        observer.runs(told, &server.observers_kubeconfig);
    }

    /// Reports that the API server at this port has ended.
    pub(super) fn has_ended(&self, port: u16) {
        if let Some(observer) = &self.observer {
            observer.has_ended(&self.name(port));
        }
    }

    /// Reports an API server that the scenario only pretends to run, with these endpoints.
    pub fn uses(&self, endpoints: &EndpointList) {
        if let Some(observer) = &self.observer {
            let (name, cluster) = (self.played(endpoints), self.cluster.clone());
            let endpoints = endpoints.iter().cloned().collect();
            observer.uses(ApiServer { name, cluster, endpoints, ready: None });
        }
    }

    /// Reports that the scenario no longer pretends to run the API server with these endpoints.
    pub fn uses_no_more(&self, endpoints: &EndpointList) {
        if let Some(observer) = &self.observer {
            observer.has_ended(&self.played(endpoints));
        }
    }

    fn played(&self, endpoints: &EndpointList) -> String {
        let urls: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        format!("{} ({})", self.cluster, urls.join(","))
    }

    fn name(&self, port: u16) -> String {
        format!("{} (port {port})", self.cluster)
    }
}

/// Keeps the logs of a machine in a directory of its own below this one.
fn keep_logs_in(removed: &Path, machine: &Machine) -> Result<()> {
    link_logs(machine, &removed.join(name(machine).replace('/', ".")))
}

fn name(machine: &Machine) -> String {
    format!("{}/{}", machine.spec().namespace, machine.spec().name)
}

fn names(machines: &[&Machine]) -> Vec<String> {
    machines.iter().map(|machine| name(machine)).collect()
}
