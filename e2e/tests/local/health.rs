//! Members of a cluster that is up fail and come back. This is reported, and with remediation mode Report nothing is
//! removed.

use crate::account::{deleted, made};
use crate::bring_up::{PATIENCE, released};
use crate::load::LowLoad;
use crate::scale::data_of;
use anyhow::{Context, Result, ensure};
use api::etcd_cluster::EtcdClusterStatus;
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership};
use e2e::observer::Silence;
use e2e::world::ADDRESS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use local_infrastructure::machine::Machine;
use serde_json::json;

/// Seconds between two checks, and until a member counts as unhealthy.
const CHECKS: (i64, i64) = (1, 8);

/// A cluster of three, as it was when it had come up.
struct Up<'a> {
    bed: &'a Bed,
    handle: ClusterHandle,
    status: EtcdClusterStatus,
    etcd: Membership,
}

/// One machine dies, reboots, hangs, and is cut off, from all or only from our manager; then two die together.
/// Conditions report each of these except the reboot. Once the machine is back, the members, Machines and endpoints are
/// the same as before. According to the audit log, no Machine was made or deleted meanwhile. No acknowledged write is
/// lost.
pub(crate) async fn members_fail_and_come_back(bed: &mut Bed) -> Result<()> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "health").await?;
    let manifests = Manifests::new("health", "demo")?.with("EtcdCluster", |etcd| {
        etcd["spec"]["healthCheck"] = json!({"intervalSeconds": CHECKS.0, "unhealthyAfterSeconds": CHECKS.1});
        etcd["spec"]["remediation"] = json!({"mode": "Report"});
    });
    let handle = ClusterHandle::new(&client, &manifests);
    manifests.apply(&client).await?;
    let status = handle.until_ready(PATIENCE).await?;
    released(&handle).await?;
    let names = handle.member_names(3);
    let etcd = handle.membership(&bed.machines, &names).await?;
    let mark = bed.plane.mark();
    let load = LowLoad::begin(bed, &handle).await?;
    let up = Up { bed, handle, status, etcd };

    up.machine_dies(0).await.context("one machine is killed")?;
    up.machine_reboots(1).await.context("one machine is rebooted")?;
    up.for_a_moment(2, Machine::freeze, Machine::thaw).await.context("one machine hangs")?;
    up.for_a_moment(0, Machine::cut_off, Machine::reconnect).await.context("one machine is cut off")?;
    up.only_we_do_not_hear_it(1).await.context("the network between us and one machine is interrupted")?;
    up.quorum_is_lost(1, 2).await.context("two machines are killed")?;
    // Each check above is of one moment. The audit log covers the time between them too.
    deleted(up.bed, &up.handle, mark, &[])?;
    made(up.bed, &up.handle, mark, 0)?;
    load.judged_by_logs(&data_of(up.bed, &up.handle, &names)?).await
}

impl Up<'_> {
    async fn machine_dies(&self, number: usize) -> Result<()> {
        let name = self.name(number);
        self.breaks("its machine is killed", number, Machine::kill).await?;
        let message = self.until("MembersHealthy", "False", "MemberUnhealthy").await?;
        ensure!(message.contains(&name), "the member is named: {message}");
        // The failure is reported immediately. As long as it may be a short absence, the cluster stays Ready.
        let message = self.until("Ready", "False", "WaitingForHealthyMembers").await?;
        ensure!(message.contains(&name), "the member is named: {message}");
        ensure!(message.contains("spec.remediation.mode"), "it is not replaced, and why is not said: {message}");
        ensure!(message.contains(&format!("delete Machine {name}")), "what a person can do is not said: {message}");
        let status = self.handle.status().await?;
        let (told, counted) = (condition(&status, "MembersHealthy")?, condition(&status, "Ready")?);
        let between = counted.last_transition_time.0.as_second() - told.last_transition_time.0.as_second();
        ensure!(between >= CHECKS.1 - 1, "Ready was given up {between} s after the first failing check");
        ensure!(
            condition(&status, "Available")?.status == "True",
            "two of three are a quorum: {:?}",
            status.conditions
        );
        let warning = self.handle.until_the_only_warning().await?;
        ensure!(warning.starts_with("Warning MemberUnhealthy") && warning.contains(&name), "the warning is: {warning}");
        self.nothing_is_removed(&status).await?;

        self.mends(number, Machine::power_on).await?;
        self.all_is_as_it_was().await
    }

    async fn machine_reboots(&self, number: usize) -> Result<()> {
        self.breaks("its machine reboots", number, Machine::reboot).await?;
        self.mends(number, |_| Ok(())).await?;
        self.all_is_as_it_was().await
    }

    async fn for_a_moment(&self, number: usize, fault: Action, end: Action) -> Result<()> {
        let name = self.name(number);
        self.breaks("it is away for a moment", number, fault).await?;
        let message = self.until("MembersHealthy", "False", "MemberUnhealthy").await?;
        ensure!(message.contains(&name), "the member is named: {message}");
        self.until("Ready", "False", "WaitingForHealthyMembers").await?;
        self.nothing_is_removed(&self.handle.status().await?).await?;
        self.mends(number, end).await?;
        self.all_is_as_it_was().await
    }

    /// The other members hear the member, so it does not count as unhealthy, however long this lasts.
    async fn only_we_do_not_hear_it(&self, number: usize) -> Result<()> {
        let (name, us) = (self.name(number), ADDRESS.parse()?);
        self.breaks("only we do not hear it", number, move |machine| machine.cut_off_from(us)).await?;
        let message = self.until("MembersHealthy", "Unknown", "HealthUnknown").await?;
        let heard = "the other members hear it, and this controller does not";
        ensure!(message.contains(&name) && message.contains(heard), "it says: {message}");
        let status = self.handle.status().await?;
        ensure!(
            condition(&status, "Available")?.status == "True",
            "two of three are a quorum: {:?}",
            status.conditions
        );
        self.nothing_is_removed(&status).await?;
        self.mends(number, Machine::reconnect).await?;
        self.all_is_as_it_was().await
    }

    async fn quorum_is_lost(&self, one: usize, other: usize) -> Result<()> {
        for number in [one, other] {
            self.breaks("its machine is killed", number, Machine::kill).await?;
        }
        let message = self.until("Available", "False", "QuorumLost").await?;
        for number in [one, other] {
            ensure!(message.contains(&self.name(number)), "the members are named: {message}");
        }
        self.nothing_is_removed(&self.handle.status().await?).await?;
        for number in [one, other] {
            self.mends(number, Machine::power_on).await?;
        }
        self.all_is_as_it_was().await
    }

    async fn until(&self, type_: &str, status: &str, reason: &str) -> Result<String> {
        self.handle.until_condition(type_, status, reason, PATIENCE).await
    }

    /// Checks that the Machines, members and endpoints are the same as before, whatever their health.
    async fn nothing_is_removed(&self, status: &EtcdClusterStatus) -> Result<()> {
        let machines = self.handle.etcd_machines().await?;
        ensure!(machines == self.handle.member_names(3), "the Machines are {machines:?}");
        let ids = |status: &EtcdClusterStatus| status.members.iter().map(|m| m.id.clone()).collect::<Vec<_>>();
        ensure!(ids(status) == ids(&self.status), "the members are {:?}", status.members);
        ensure!(status.endpoints == self.status.endpoints, "the endpoints are {}", status.endpoints);
        let published = self.handle.control_plane_endpoints().await?.join(",");
        ensure!(published == self.status.endpoints, "the control plane has {published}");
        Ok(())
    }

    async fn all_is_as_it_was(&self) -> Result<()> {
        for (type_, reason) in [("MembersHealthy", "MembersHealthy"), ("Ready", "Ready"), ("Available", "Available")] {
            self.until(type_, "True", reason).await?;
        }
        // The conditions may still be from before a reboot, so the members themselves are asked too.
        let etcd = e2e::until::until("the members answer", PATIENCE, async || {
            Ok(Some(self.handle.membership(&self.bed.machines, &self.handle.member_names(3)).await?))
        })
        .await?;
        ensure!(etcd == self.etcd, "etcd was {:?}, and is {etcd:?}", self.etcd);
        self.nothing_is_removed(&self.handle.status().await?).await
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.handle.etcd)
    }

    async fn breaks<F>(&self, what: &str, number: usize, action: F) -> Result<()>
    where
        F: FnOnce(&Machine) -> local_infrastructure::machine::Result<()> + Send + 'static,
    {
        let machine = self.bed.machines.get(&self.handle.namespace, &self.name(number))?;
        self.bed.fault(&format!("{}: {what}", self.name(number)), &[&machine], Silence::Lasting);
        Ok(tokio::task::spawn_blocking(move || action(&machine)).await??)
    }

    async fn mends(&self, number: usize, action: Action) -> Result<()> {
        let machine = self.bed.machines.get(&self.handle.namespace, &self.name(number))?;
        self.bed.fault_is_over(&format!("{}: that is over", self.name(number)), &[&machine]);
        Ok(tokio::task::spawn_blocking(move || action(&machine)).await??)
    }
}

type Action = fn(&Machine) -> local_infrastructure::machine::Result<()>;

fn condition<'a>(status: &'a EtcdClusterStatus, type_: &str) -> Result<&'a Condition> {
    let found = status.conditions.iter().find(|condition| condition.type_ == type_);
    found.with_context(|| format!("there is no condition {type_}"))
}
