//! The events in the world of a forecast that no step of the planner causes: machines boot and disappear, the control
//! plane rolls out, time passes.

use super::world::World;
use crate::observation::report;
use api::endpoints::{EndpointLists, parse_list};
use api::names;
use controller_support::external::MachineView;
use etcd_cluster_controller::observation::probe::{Run, RunKind};
use etcd_cluster_controller::observation::{Member, Membership, Outcome, Probe, Report};
use etcd_cluster_controller::plan::{Decision, due};
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;

impl World {
    /// Makes one such event happen. Returns whether there was one.
    pub(super) fn others_move(&mut self) -> bool {
        let observation = &self.observation;
        let is_member = |machine: &MachineView| {
            let mut members = observation.members().into_iter().flatten();
            members
                .any(|(id, member)| observation.machine_of(*id, member).is_some_and(|other| other.name == machine.name))
        };
        let joins =
            |machine: &&MachineView| observation.is_admitted(machine) && !machine.deleting && !is_member(machine);
        let new = observation.machines.values().find(joins).map(|machine| machine.name.clone());
        if let Some(new) = new {
            return self.join(&new);
        }
        self.promote() || self.control_plane_moves() || self.infrastructure_deletes()
    }

    /// Removes a Machine that no hook keeps any more. This comes last, because infrastructure may be slow, and then
    /// most Machines exist side by side.
    fn infrastructure_deletes(&mut self) -> bool {
        let is_kept = |machine: &MachineView| machine.annotations.contains_key(names::PRE_TERMINATE_HOOK_ANNOTATION);
        let mut machines = self.observation.machines.values();
        let gone = machines.find(|machine| machine.deleting && !is_kept(machine)).map(|machine| machine.name.clone());
        gone.inspect(|name| self.vanish(name)).is_some()
    }

    /// Makes an admitted machine a learner.
    fn join(&mut self, name: &str) -> bool {
        let now = self.observation.now;
        // A machine shows an address of the first kind that is wanted.
        let wanted = self.observation.etcd.spec.address_types.first();
        let kind = wanted.map_or("InternalIP", |kind| kind.as_str()).to_owned();
        let has_one = self.observation.address(&self.observation.machines[name]).is_some();
        self.with_machine(name, |machine| {
            if !has_one {
                machine.addresses.push((kind, format!("{name}.new")));
            }
            // By now, the machine has its bootstrap data.
            machine.data_secret = Some(name.to_owned());
        });
        let machine = &self.observation.machines[name];
        let Some(address) = self.observation.address(machine).map(str::to_owned) else { return false };
        let id = self.next_id;
        let version = machine.version.clone().unwrap_or_default();
        let Membership::Known { members, cluster_id, .. } = &mut self.observation.membership else { return false };
        members.insert(
            id,
            Member {
                name: name.to_owned(),
                peer_urls: vec![names::peer_url(&address)],
                client_urls: vec![names::client_url(&address)],
                learner: true,
            },
        );
        let alarms = self.observation.probes.values().find_map(|probe| match &probe.outcome {
            Outcome::Answered(report) => Some(report.alarms.clone()),
            _ => None,
        });
        let report = Report {
            alarms: alarms.unwrap_or_default(),
            ..report(id, *cluster_id, 0, true, version.trim_start_matches('v'))
        };
        let probe = Probe {
            url: names::client_url(&address),
            at: now,
            outcome: Outcome::Answered(report),
            run: Run::new(RunKind::Healthy, now),
            answered: Some(now),
            expected: Some(id),
        };
        self.observation.probes.insert(name.to_owned(), probe);
        self.next_id += 1;
        true
    }

    /// Makes a learner a voter.
    fn promote(&mut self) -> bool {
        let Membership::Known { members, .. } = &mut self.observation.membership else { return false };
        let Some((id, member)) = members.iter_mut().find(|(_, member)| member.learner) else { return false };
        member.learner = false;
        let id = *id;
        self.with_reports(|report| {
            if report.member_id == id {
                report.learner = false;
            }
        });
        true
    }

    /// The hook writes the endpoints into the control plane, which then rolls out.
    fn control_plane_moves(&mut self) -> bool {
        let etcd = &self.observation.etcd;
        let lists = EndpointLists::parse(self.observation.endpoints_in_use().unwrap_or_default());
        let (ready, published) = etcd
            .status
            .as_ref()
            .map_or((false, Default::default()), |status| (status.ready, parse_list(&status.endpoints)));
        let has_published = lists.iter().any(|list| *list == published);
        let next = match () {
            () if lists.is_empty() => return false,
            () if has_published && lists.iter().count() > 1 => EndpointLists::from_iter([published]),
            () if !has_published && ready => {
                self.forecast.control_plane_rollouts += 1;
                lists.iter().cloned().chain([published]).collect()
            }
            () => return false,
        };
        let annotations = self.etcd().annotations_mut();
        annotations.insert(names::ENDPOINTS_IN_USE_ANNOTATION.to_owned(), next.to_string());
        true
    }

    /// Advances the time to the next one at which the planner wants to decide again. Returns whether there is one.
    pub(super) fn time_passes(&mut self, decision: &Decision) -> bool {
        let Some(wait) = due(&self.observation, &decision.next) else { return false };
        let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
        let Ok(now) = self.observation.now.checked_add(wait.max(SignedDuration::from_secs(1))) else { return false };
        self.observation.now = now;
        // No member changes its health.
        for probe in self.observation.probes.values_mut().chain(self.observation.strangers.values_mut()) {
            (probe.at, probe.run.last) = (now, now);
        }
        if let Membership::Known { at, .. } = &mut self.observation.membership {
            *at = now;
        }
        true
    }
}
