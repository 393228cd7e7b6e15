//! A cluster with data that must not be lost.

use crate::bring_up::{PATIENCE, released};
use crate::load::LowLoad;
use anyhow::{Context, Result, ensure};
use api::names::{ACCEPT_CLUSTER_ID_ANNOTATION, CLUSTER_ID_ANNOTATION};
use e2e::bed::data::{DataLoss, Keys, never_comes_back, on, serves, stays_silent};
use e2e::bed::{Bed, ClusterHandle, Manifests, Membership, States, never_ready_again};
use e2e::observer::{Silence, rules};
use e2e::until::{Broken, until};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use local_infrastructure::machine::Machine;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

/// Seconds between two checks, and until a member counts as unhealthy.
const CHECKS: (i64, i64) = (1, 4);
/// How long the scenario watches a member that has to stay down: a few times what a restart takes.
const WATCHED: Duration = Duration::from_secs(5);
/// How long clients have to reach a member that has come up: long enough for some requests each.
const MET: Duration = Duration::from_secs(2);
/// How long the observer may take to see what is on a disk.
const SEEN: Duration = Duration::from_secs(3);

/// Removes what etcd and etcdadm have on a machine, other than what the user-data brings.
const REINSTALLED: &str = "systemctl stop etcd.service && rm -rf /var/lib/etcd/* /var/lib/etcdadm \
                           /etc/systemd/system/etcd.service && find /etc/etcd -maxdepth 1 -type f -delete";

/// A cluster that is up and in use.
pub(super) struct Cluster<'a> {
    bed: &'a Bed,
    pub(super) handle: ClusterHandle,
    replicas: usize,
    /// The keys that the scenario writes itself, if no clients write all the time.
    keys: Keys,
    load: Option<LowLoad>,
}

/// A loss of one of the first members, which are numbered. Member 0 has initialized the cluster.
pub(super) struct Loss {
    pub(super) member: usize,
    pub(super) loss: DataLoss,
}

impl<'a> Cluster<'a> {
    /// Brings up a cluster. If `written`, clients write to it all the time.
    pub(super) async fn up(bed: &'a Bed, namespace: &str, name: &str, replicas: usize, written: bool) -> Result<Self> {
        let client = bed.client();
        let manifests =
            Manifests::new(namespace, name)?.replicas(i64::try_from(replicas)?).with("EtcdCluster", |etcd| {
                etcd["spec"]["healthCheck"] = json!({"intervalSeconds": CHECKS.0, "unhealthyAfterSeconds": CHECKS.1});
                // The member has to stay down for the scenario to see it, so only a person replaces it.
                etcd["spec"]["remediation"] = json!({"mode": "Report"});
            });
        let handle = ClusterHandle::new(&client, &manifests);
        manifests.apply(&client).await?;
        handle.until_ready(PATIENCE).await?;
        released(&handle).await?;
        let load = if written { Some(LowLoad::begin(bed, &handle).await?) } else { None };
        Ok(Self { bed, handle, replicas, keys: Keys::default(), load })
    }

    /// Checks that nothing that clients have written is lost.
    pub(super) async fn has_lost_nothing(&mut self) -> Result<()> {
        match self.load.take() {
            Some(load) => load.judged().await,
            None => Ok(()),
        }
    }

    /// Makes a member lose its data. Checks that it stays down whatever happens to its machine, that the cluster is not
    /// Ready meanwhile, that the members stay the same, and that no key is lost.
    pub(super) async fn loses(&mut self, Loss { member, loss }: Loss) -> Result<()> {
        let begun = Instant::now();
        let lost = self.machine(&self.name(member))?;
        self.write(&lost, 5).await?;
        let about = lost.spec().name.clone();
        if loss.is_by_a_copy() {
            // The machine stands still for this, and reboots for an older copy.
            self.bed.fault(&format!("{about}: a copy is saved"), &[&lost], Silence::AtMost(PATIENCE));
        }
        loss.prepare(&lost).await?;
        self.write(&lost, 5).await?;
        self.until_well().await?;
        let (machines, others) = (self.handle.etcd_machines().await?, self.others(member).await?);
        let before = Membership::on(lost.clone()).await?;
        ensure!(before.voters().len() == self.replicas, "{before:?}");

        let states = States::of(self.handle.etcds(), &self.handle.etcd).await?;
        self.bed.fault(&format!("{about}: {loss}"), &[&lost], Silence::Lasting);
        loss.strike(&lost).await?;
        never_comes_back(&lost, loss, WATCHED).await?;
        self.is_told_of(member).await?;
        never_ready_again(&states.stop().await?)?;

        let now = self.handle.etcd_machines().await?;
        ensure!(now == machines, "the Machines were {machines:?}, and are {now:?}");
        for other in &others {
            self.keys.are_all_on(other).await?;
            self.write(other, 1).await?;
            let list = Membership::on(other.clone()).await?;
            ensure!(list == before, "the members were {before:?}, and are {list:?}");
        }
        println!("  {}: {loss}: {:.1} s", lost.spec().name, begun.elapsed().as_secs_f32());
        Ok(())
    }

    /// Installs the first machine again: all that etcd and etcdadm have on it is gone, and its bootstrap commands run.
    /// Checks that the etcd that it initializes stops everything, and that the others keep every key.
    pub(super) async fn first_is_reinstalled(&mut self) -> Result<()> {
        let (first, others) = (self.machine(&self.name(0))?, self.others(0).await?);
        self.write(&first, 5).await?;
        let machines = self.handle.etcd_machines().await?;
        let before = Membership::on(others[0].clone()).await?;
        self.bed.fault(&format!("{} is installed again", first.spec().name), &[&first], Silence::Lasting);
        self.bed.expect_violation(rules::FORGETFUL, &first);
        let gone = on(&first, |machine| machine.exec(&["sh", "-c", REINSTALLED])).await?;
        ensure!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
        let made = on(&first, |machine| machine.rerun_bootstrap(PATIENCE)).await?;
        ensure!(made.status.success(), "{}", first.console()?);
        let message = self.handle.until_condition("Ready", "False", "ClusterIDChanged", PATIENCE).await?;
        for said in [format!("Machine {} (", self.name(0)), "and delete the Machines that have them".to_owned()] {
            ensure!(message.contains(&said), "{message}");
        }
        self.refuses_the_other_id(&message).await?;
        tokio::time::sleep(WATCHED).await;
        let now = self.handle.etcd_machines().await?;
        ensure!(now == machines, "the Machines were {machines:?}, and are {now:?}");
        for other in &others {
            self.keys.are_all_on(other).await?;
            let list = Membership::on(other.clone()).await?;
            ensure!(list == before, "the members were {before:?}, and are {list:?}");
        }
        Ok(())
    }

    /// A person takes the empty etcd for a restored one. The others have a quorum, so the word is removed, and has no
    /// effect.
    async fn refuses_the_other_id(&self, message: &str) -> Result<()> {
        let id = message.split_once("answers as a member of etcd cluster ").and_then(|(_, rest)| rest.split_once(','));
        let (id, _) = id.with_context(|| message.to_owned())?;
        ensure!(!message.contains(ACCEPT_CLUSTER_ID_ANNOTATION), "{message}");
        let (etcds, params) = (self.handle.etcds(), PatchParams::default());
        let word = Patch::Merge(json!({"metadata": {"annotations": {(ACCEPT_CLUSTER_ID_ANNOTATION): id}}}));
        let before =
            etcds.patch(&self.handle.etcd, &params, &word).await?.annotations().get(CLUSTER_ID_ANNOTATION).cloned();
        until("the word is removed", PATIENCE, async || {
            let now = etcds.get(&self.handle.etcd).await?;
            let (recorded, word) =
                (now.annotations().get(CLUSTER_ID_ANNOTATION), now.annotations().get(ACCEPT_CLUSTER_ID_ANNOTATION));
            let is_kept = recorded == before.as_ref();
            ensure!(is_kept, Broken(format!("{recorded:?} is recorded in place of {before:?}")));
            Ok(word.is_none().then_some(()))
        })
        .await
    }

    /// Gives the machine of the only member an older copy of its data, and later the latest data again. Only then it
    /// reports what is wrong: first the judge's verdict on what clients were told, then what was seen of the member.
    pub(super) async fn has_an_older_copy_for_a_while(mut self) -> Result<()> {
        let load = self.load.take().context("nobody writes to it")?;
        let machine = self.machine(&self.name(0))?;
        let about = machine.spec().name.clone();
        let saved = machine.saved_data();
        let (older, latest) = (saved.with_file_name("older-data"), saved.with_file_name("latest-data"));
        self.bed.fault(&format!("{about}: it gets an older copy of its data"), &[&machine], Silence::Lasting);
        DataLoss::OlderCopy.prepare(&machine).await?;
        // The copy does not have what is written now.
        tokio::time::sleep(WATCHED).await;
        on(&machine, Machine::power_off).await?;
        fs::rename(&saved, &older).context("keep the older copy")?;
        on(&machine, Machine::save_data).await?;
        fs::rename(&saved, &latest).context("keep the latest data")?;
        fs::rename(&older, &saved).context("choose the older copy")?;
        on(&machine, Machine::put_back_data).await?;
        on(&machine, Machine::power_on).await?;
        let silent = stays_silent(&machine, WATCHED).await;
        tokio::time::sleep(MET).await;
        let untouched = DataLoss::OlderCopy.has_left_no_trace(&machine).await;

        on(&machine, Machine::power_off).await?;
        fs::remove_dir_all(&saved).context("remove the older copy")?;
        fs::rename(&latest, &saved).context("choose the latest data")?;
        on(&machine, Machine::put_back_data).await?;
        tokio::time::sleep(SEEN).await;
        self.bed.fault_is_over(&format!("{about}: it has its latest data"), &[&machine]);
        on(&machine, Machine::power_on).await?;
        serves(&machine).await?;
        self.until_well().await?;
        load.judged_by_logs(&[]).await?;
        silent.and(untouched).context("the older copy")
    }

    /// Checks the conditions: without a quorum, they say that it is lost; with one, they name the missing member. In
    /// either case the cluster is not Ready.
    async fn is_told_of(&self, member: usize) -> Result<()> {
        let message = if self.replicas == 1 {
            self.handle.until_condition("Available", "False", "QuorumLost", PATIENCE).await?
        } else {
            self.handle.until_condition("Available", "True", "Available", PATIENCE).await?;
            self.handle.until_condition("MembersHealthy", "False", "MemberUnhealthy", PATIENCE).await?
        };
        ensure!(message.contains(&self.name(member)), "the member is named: {message}");
        until(format!("{} is not ready", self.handle.etcd), PATIENCE, async || {
            let status = self.handle.status().await?;
            ensure!(!status.ready, "{:?}", status.conditions);
            Ok(Some(()))
        })
        .await?;
        let published = self.handle.control_plane_endpoints().await?.join(",");
        let status = self.handle.status().await?;
        ensure!(published == status.endpoints && !published.is_empty(), "the control plane has {published}");
        Ok(())
    }

    /// Deletes the Machine, as a person does. Waits until the Machine and its member are gone, and another member is
    /// there, with everything that was written.
    pub(super) async fn gets_another_in_place_of(&mut self, member: usize) -> Result<()> {
        let begun = Instant::now();
        let gone = self.name(member);
        let witness = self.others(member).await?.into_iter().next().context("no other member")?;
        let before = Membership::on(witness).await?;
        let old = before.members.iter().find(|member| member.name == gone).context("it is not listed")?.id.clone();
        self.handle.delete("Machine", &gone).await?;
        until(format!("another member is there in place of {gone}"), PATIENCE, async || {
            let machines = self.handle.etcd_machines().await?;
            ensure!(machines.len() == self.replicas && !machines.contains(&gone), "the Machines are {machines:?}");
            let list = self.handle.membership(&self.bed.machines, &machines).await?;
            ensure!(list.cluster_id == before.cluster_id, Broken(format!("it is another cluster: {list:?}")));
            ensure!(list.voters().len() == self.replicas, "{:?}", list.members);
            ensure!(list.members.iter().all(|member| member.id != old), "{old} is still there: {:?}", list.members);
            Ok(Some(()))
        })
        .await?;
        self.until_well().await?;
        for name in self.handle.etcd_machines().await? {
            self.keys.are_all_on(&self.machine(&name)?).await?;
        }
        println!("  {gone} replaced: {:.1} s", begun.elapsed().as_secs_f32());
        Ok(())
    }

    /// Writes keys, unless clients write all the time. In that case there are no such keys: the judge looks at what the
    /// clients were told, and a member that has them all only shows that it answers.
    async fn write(&mut self, machine: &Machine, keys: usize) -> Result<()> {
        if self.load.is_none() {
            self.keys.write(machine, keys).await?;
        }
        Ok(())
    }

    async fn until_well(&self) -> Result<()> {
        for (type_, reason) in [("MembersHealthy", "MembersHealthy"), ("Ready", "Ready"), ("Available", "Available")] {
            self.handle.until_condition(type_, "True", reason, PATIENCE).await?;
        }
        Ok(())
    }

    /// The machines of the other members.
    async fn others(&self, member: usize) -> Result<Vec<Machine>> {
        let lost = self.name(member);
        let names = self.handle.etcd_machines().await?;
        names.iter().filter(|name| **name != lost).map(|name| self.machine(name)).collect()
    }

    fn machine(&self, name: &str) -> Result<Machine> {
        Ok(self.bed.machines.get(&self.handle.namespace, name)?)
    }

    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.handle.etcd)
    }
}
