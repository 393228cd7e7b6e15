//! The world of a forecast: an observation, and what the planner's steps do to it.

use super::Forecast;
use api::{EtcdCluster, admission, names};
use controller_support::external::MachineView;
use etcd_cluster_controller::build::{self, MachineParts};
use etcd_cluster_controller::observation::probe::{MemberFault, Run, RunKind};
use etcd_cluster_controller::observation::{Membership, Observation, Outcome, Probe, Report, Template};
use etcd_cluster_controller::plan::{Decision, Plan, Step, plan};
use etcd_cluster_controller::status::status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use std::sync::Arc;

/// Limit for the number of steps. A rollout that exceeds it counts as one that never ends.
const STEPS: usize = 2_000;
/// If only time passes this many times in a row, nothing else is expected to happen.
const IDLE: usize = 30;

pub(super) struct World {
    pub(super) observation: Observation,
    pub(super) forecast: Forecast,
    /// The ID of the next new member. It is incremented for each.
    pub(super) next_id: u64,
}

impl World {
    pub(super) fn new(observation: Observation) -> Self {
        let ids = observation.members().into_iter().flatten().map(|(id, _)| *id);
        let next_id = ids.max().unwrap_or_default().wrapping_add(1);
        let mut world = Self { observation, forecast: Forecast::default(), next_id };
        world.count();
        world
    }

    /// Runs until nothing moves, and returns the last decision.
    pub(super) fn run(&mut self) -> Decision {
        let mut idle = 0;
        for _ in 0..STEPS {
            let decision = plan(&self.observation);
            self.etcd().status = Some(status(&self.observation, &decision, None));
            let moves = match &decision.next {
                Plan::Do(step) => self.step(step),
                Plan::Steady | Plan::Wait(_) | Plan::Block(_) => self.others_move(),
            };
            self.count();
            if moves {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > IDLE || !self.time_passes(&decision) {
                return decision;
            }
        }
        plan(&self.observation)
    }

    fn count(&mut self) {
        let forecast = &mut self.forecast;
        forecast.peak = forecast.peak.max(self.observation.live_machines().count());
        forecast.peak_with_leaving = forecast.peak_with_leaving.max(self.observation.machines.len());
    }

    pub(super) fn etcd(&mut self) -> &mut EtcdCluster {
        Arc::make_mut(&mut self.observation.etcd)
    }

    /// Carries out a step. Returns whether this world models it.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Record { annotations, .. } => {
                let finalizer = names::ETCD_CLUSTER_FINALIZER.to_owned();
                let etcd = self.etcd();
                if !etcd.finalizers().contains(&finalizer) {
                    etcd.finalizers_mut().push(finalizer);
                }
                for (key, value) in annotations {
                    match value {
                        Some(value) => etcd.annotations_mut().insert((*key).to_owned(), value.clone()),
                        None => etcd.annotations_mut().remove(*key),
                    };
                }
            }
            Step::PublishInit { client_urls, cluster_id, admitted, .. } => {
                self.observation.init_urls = Some(client_urls.clone());
                self.observation.init_cluster_id = Some(cluster_id.clone());
                self.observation.admitted = Some(admission::decode(admitted));
            }
            Step::CreateMachine { number, failure_domain, .. } => {
                return self.create(*number, failure_domain.as_deref());
            }
            Step::Admit { admitted, .. } => self.observation.admitted = Some(admission::decode(admitted)),
            Step::DeleteHeldBack { name, .. } => self.vanish(name),
            Step::AddHook { machine } => self.with_machine(machine, |machine| {
                let (hook, owner) = (names::PRE_TERMINATE_HOOK_ANNOTATION, names::PRE_TERMINATE_HOOK_OWNER);
                machine.annotations.insert(hook.to_owned(), owner.to_owned());
            }),
            Step::DeleteMachine { name, why } => {
                self.forecast.deleted.push((name.clone(), *why));
                let now = self.observation.now;
                self.with_machine(name, |machine| (machine.deleting, machine.deleted) = (true, Some(Time(now))));
            }
            Step::ReleaseHook { machine, .. } => self.with_machine(machine, |machine| {
                machine.annotations.remove(names::PRE_TERMINATE_HOOK_ANNOTATION);
            }),
            Step::MoveLeader { to, .. } => self.with_reports(|report| report.leader = *to),
            Step::RemoveMember(permission) => self.remove(permission.member_id()),
            // The status contains the effects of these steps.
            Step::Begin(_) | Step::Finish(_) | Step::BeginRemediation(_) | Step::NoteRelease { .. } => {}
            // Certificates, Machines without a Node, and deletions of the EtcdCluster have no effect on a forecast.
            Step::EnsureCertificates
            | Step::LabelCa
            | Step::SetProviderId { .. }
            | Step::DeleteMachines { .. }
            | Step::RemoveFinalizer => return false,
        }
        true
    }

    pub(super) fn with_machine(&mut self, name: &str, change: impl FnOnce(&mut MachineView)) {
        if let Some(machine) = self.observation.machines.get_mut(name) {
            change(machine);
        }
    }

    /// Makes a Machine as the controller does; it is held back.
    fn create(&mut self, number: u64, failure_domain: Option<&str>) -> bool {
        let (Template::Found { clones, .. }, Some(cluster)) =
            (&self.observation.template, self.observation.cluster.one())
        else {
            return false;
        };
        let (etcd, infrastructure) = (self.observation.etcd.clone(), clones.clone());
        let name = format!("{}-{number}", etcd.name_any());
        let parts = MachineParts {
            etcd: &etcd,
            cluster: &cluster.name,
            name: &name,
            infrastructure: &infrastructure,
            failure_domain,
            replaces: None,
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(names::CLUSTER_GROUP, "v1beta2", "Machine"));
        let mut machine = build::machine(&parts, &kind);
        machine.metadata.uid = Some(format!("new-{name}"));
        machine.metadata.creation_timestamp = Some(Time(self.observation.now));
        let config = build::config(&parts);
        let limit = config.annotations().get(names::MAX_LEARNERS_ANNOTATION).cloned();
        self.observation.learner_limits.extend(limit.map(|limit| (name.clone(), limit)));
        self.observation.configs.insert(name.clone(), config.spec);
        self.observation.machines.insert(name.clone(), MachineView::read(&machine));
        let annotations = self.etcd().annotations_mut();
        annotations.insert(names::LAST_NAME_NUMBER_ANNOTATION.to_owned(), number.to_string());
        self.forecast.made.push(name);
        true
    }

    pub(super) fn vanish(&mut self, name: &str) {
        self.observation.machines.remove(name);
        self.observation.configs.remove(name);
        self.observation.learner_limits.remove(name);
        self.observation.probes.remove(name);
    }

    pub(super) fn with_reports(&mut self, mut change: impl FnMut(&mut Report)) {
        for probe in self.observation.probes.values_mut() {
            if let Outcome::Answered(report) = &mut probe.outcome {
                change(report);
            }
        }
    }

    fn remove(&mut self, id: u64) {
        if let Membership::Known { members, .. } = &mut self.observation.membership {
            members.remove(&id);
        }
        let now = self.observation.now;
        for probe in self.observation.probes.values_mut().filter(|probe| probe.expected == Some(id)) {
            probe.outcome = Outcome::MemberFault(MemberFault::Refused);
            probe.run = Run::new(RunKind::Failing, now);
            probe.expected = None;
        }
        let voters = self.observation.members().into_iter().flatten().filter(|(_, member)| !member.learner);
        let first = voters.map(|(id, _)| *id).next();
        let leads = |probe: &Probe| probe.report().is_some_and(|report| report.leader == report.member_id);
        if let Some(first) = first.filter(|_| !self.observation.probes.values().any(leads)) {
            self.with_reports(|report| report.leader = first);
        }
    }
}
