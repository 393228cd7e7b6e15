//! The same three machines with the same bootstrap data, without this project's controllers, as a person with a script
//! would make them: one after the other, or side by side as our controllers do. Then three other machines replace them.

use super::PATIENCE;
use crate::apply::apply_object;
use crate::bed::data::said;
use crate::bed::{Bed, ClusterHandle, Manifests, Membership};
use crate::plane::workload::EtcdAccess;
use crate::until::until;
use anyhow::{Context, Result, anyhow, ensure};
use etcdadm_bootstrap::build::{Bootstrap, CertificateAuthority, Role, SecretValues, render};
use k8s_openapi::jiff::Timestamp;
use local_infrastructure::address::IpFamily;
use local_infrastructure::machine::{Machine, MachineSpec};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
/// The wrapper that etcdadm leaves on every machine.
const ETCDCTL: &str = "/opt/bin/etcdctl.sh";
/// How many learners etcd allows at a time for `Pace::SideBySide`: as many as for an EtcdCluster.
const MAX_LEARNERS: &str = "3";

/// When each machine follows the one before.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    /// Each once the one before has run its bootstrap data.
    OneByOne,
    /// As our controllers do: the first machine alone, and then all others as learners together.
    SideBySide,
}

/// Applies the Machine, LocalMachine and Secret of each member by hand. Everything below this project's controllers is
/// the same, including Cluster API and its pace.
pub(super) async fn through_cluster_api(bed: &Bed, namespace: &str) -> Result<Duration> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, namespace).await?;
    let manifests = Manifests::new(namespace, "demo")?
        .without(|document| {
            matches!(document["kind"].as_str(), Some("EtcdCluster" | "KubeadmControlPlane" | "LocalMachineTemplate"))
        })
        .with("Cluster", |cluster| {
            cluster["metadata"]["annotations"] = json!({});
            if let Some(spec) = cluster["spec"].as_object_mut() {
                spec.remove("controlPlaneRef");
            }
        });
    let data = UserData::new(Pace::OneByOne)?;
    let begun = Instant::now();
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    let mut addresses = Vec::new();
    for index in 0..MEMBERS {
        let name = format!("demo-etcd-{index}");
        for object in objects(namespace, &name, &data.of(&name, &addresses)?) {
            apply_object(&client, &object).await?;
        }
        let machine = until(format!("machine {name} has run its bootstrap data"), PATIENCE, async || {
            let machine = bed.machines.get(namespace, &name)?;
            Ok(machine.bootstrap()?.map(|outcome| (machine.address(), outcome)))
        });
        let (address, outcome) = machine.await?;
        ensure!(outcome.succeeded, "{name}: {:?}", outcome.errors);
        addresses.push(address);
    }
    let took = begun.elapsed();
    super::remove(bed, &handle).await?;
    Ok(took)
}

/// Makes the machines directly: no Cluster API, no API server.
pub(super) async fn machines_alone(bed: &Bed, namespace: &str, pace: Pace) -> Result<Duration> {
    let mut bare = Bare::new(bed, namespace, pace)?;
    let begun = Instant::now();
    bare.joins().await?;
    let took = begun.elapsed();
    bare.destroy()?;
    Ok(took)
}

/// Machines of one etcd cluster, made directly.
pub(super) struct Bare<'a> {
    bed: &'a Bed,
    namespace: String,
    pace: Pace,
    data: UserData,
    /// The address of each machine, by its number.
    addresses: Vec<Ipv4Addr>,
    /// The numbers of machines whose members have left etcd, or are about to.
    left: Vec<usize>,
}

impl<'a> Bare<'a> {
    pub(super) fn new(bed: &'a Bed, namespace: &str, pace: Pace) -> Result<Self> {
        let (namespace, data) = (namespace.to_owned(), UserData::new(pace)?);
        Ok(Self { bed, namespace, pace, data, addresses: Vec::new(), left: Vec::new() })
    }

    /// Makes three more machines, at this pace.
    pub(super) async fn joins(&mut self) -> Result<()> {
        let wanted = self.addresses.len() + MEMBERS;
        while self.addresses.len() < wanted {
            let together = match self.pace {
                Pace::SideBySide if !self.addresses.is_empty() => wanted - self.addresses.len(),
                Pace::SideBySide | Pace::OneByOne => 1,
            };
            self.boot(together).await?;
        }
        Ok(())
    }

    /// Makes this many machines at the same time. They join the members that were there before.
    async fn boot(&mut self, together: usize) -> Result<()> {
        let first = self.addresses.len();
        let mut booting = Vec::new();
        for index in first..first + together {
            let name = name(index);
            // Beyond the addresses that the controllers have given out in this run.
            let address = Ipv4Addr::new(10, 77, 200, 10 + u8::try_from(index)?);
            let data = self.data.of(&name, &self.voters())?;
            let machine =
                self.bed.machines.create(spec(self.bed, &self.namespace, &name, address)?, data.as_bytes())?;
            machine.power_on()?;
            booting.push((name, address, machine));
        }
        for (name, address, machine) in booting {
            let what = format!("machine {name} has run its bootstrap data");
            let outcome = until(what, PATIENCE, async || Ok(machine.bootstrap()?)).await?;
            ensure!(outcome.succeeded, "{name}: {:?}", outcome.errors);
            self.addresses.push(address);
        }
        Ok(())
    }

    /// Three other machines join, and then the first three members leave. `told` gets the endpoints of those that stay
    /// before each of them leaves.
    pub(super) async fn doubles(&mut self, told: impl Fn(Vec<String>)) -> Result<()> {
        self.joins().await?;
        for _ in 0..MEMBERS {
            self.one_leaves(&told).await?;
        }
        Ok(())
    }

    /// Another machine joins and one of the first three members leaves, three times: what our controllers do if no API
    /// server uses etcd. `told` is as for [`Bare::doubles`].
    pub(super) async fn replaces(&mut self, told: impl Fn(Vec<String>)) -> Result<()> {
        for _ in 0..MEMBERS {
            self.boot(1).await?;
            self.one_leaves(&told).await?;
        }
        Ok(())
    }

    /// What a client needs that uses all members.
    pub(super) async fn access(&self) -> Result<EtcdAccess> {
        let machine = self.machine(0)?;
        let file = async |name: &str| said(&machine, &["cat", &format!("/etc/etcd/pki/{name}")]).await;
        let endpoints = client_urls(&self.voters());
        let (ca, certificate) = (file("ca.crt").await?, file("etcdctl-etcd-client.crt").await?);
        Ok(EtcdAccess { endpoints, ca, certificate, key: file("etcdctl-etcd-client.key").await? })
    }

    /// Removes one of the first three members as a person would: the leader last, after it has moved leadership to a
    /// member that stays.
    async fn one_leaves(&mut self, told: impl Fn(Vec<String>)) -> Result<()> {
        let stays = self.machine(MEMBERS)?;
        let etcd = Membership::on(stays.clone()).await?;
        let id = |index: usize| {
            let found = etcd.members.iter().find(|member| member.name == name(index));
            found.map(|member| member.id.clone())
        };
        let status = said(&stays, &[ETCDCTL, "endpoint", "status", "--write-out=json"]).await?;
        let status: Value = serde_json::from_str(&status).context("etcdctl's answer")?;
        let leader = status[0]["Status"]["leader"].as_u64().context("nobody leads")?;
        let leader = format!("{leader:x}");
        let old = (0..MEMBERS).filter_map(|index| Some((id(index)?, index)));
        let (leaving, index) = old.min_by_key(|(id, _)| *id == leader).context("all have left")?;
        self.left.push(index);
        told(client_urls(&self.voters()));
        if leaving == leader {
            let next = id(MEMBERS).context("the new member is not in the list")?;
            said(&self.machine(index)?, &[ETCDCTL, "move-leader", &next]).await?;
        }
        // etcd refuses the removal until the members that stay have been connected for five seconds.
        until(format!("{} is removed", name(index)), PATIENCE, async || {
            said(&stays, &[ETCDCTL, "member", "remove", &leaving]).await.map(Some)
        })
        .await?;
        Ok(())
    }

    fn voters(&self) -> Vec<Ipv4Addr> {
        let machines = self.addresses.iter().enumerate();
        machines.filter(|(index, _)| !self.left.contains(index)).map(|(_, address)| *address).collect()
    }

    /// Removes all machines.
    pub(super) fn destroy(self) -> Result<()> {
        for index in 0..self.addresses.len() {
            self.bed.machines.destroy(&self.namespace, &name(index))?;
        }
        Ok(())
    }

    fn machine(&self, index: usize) -> Result<Machine> {
        Ok(self.bed.machines.get(&self.namespace, &name(index))?)
    }
}

fn client_urls(addresses: &[Ipv4Addr]) -> Vec<String> {
    addresses.iter().map(|address| api::names::client_url(&address.to_string())).collect()
}

fn name(index: usize) -> String {
    format!("demo-etcd-{index}")
}

fn spec(bed: &Bed, namespace: &str, name: &str, address: Ipv4Addr) -> Result<MachineSpec> {
    Ok(MachineSpec {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("{namespace}-{name}"),
        host_name: name.to_owned(),
        address,
        ip_family: IpFamily::default(),
        prefix_length: crate::world::PREFIX_LENGTH,
        gateway: crate::world::ADDRESS.parse()?,
        bridge: crate::world::BRIDGE.to_owned(),
        image_dir: bed.world().state("image")?,
        program: crate::bed::programs()?.join("local-infrastructure"),
    })
}

/// The bootstrap data that our bootstrap provider would make, member by member.
struct UserData {
    authority: CertificateAuthority,
    spec: api::EtcdadmConfigSpec,
    max_learners: Option<&'static str>,
}

impl UserData {
    fn new(pace: Pace) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        let authority = CertificateAuthority::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes())?;
        let spec = api::EtcdadmConfigSpec { version: Some("3.6.16".to_owned()), ..Default::default() };
        let max_learners = match pace {
            Pace::OneByOne => None,
            Pace::SideBySide => Some(MAX_LEARNERS),
        };
        Ok(Self { authority, spec, max_learners })
    }

    fn of(&self, member: &str, voters: &[Ipv4Addr]) -> Result<String> {
        let client_urls = client_urls(voters);
        let role = if client_urls.is_empty() {
            Role::Init { not_after: Timestamp::MAX }
        } else {
            Role::Join { client_urls, cluster_id: None }
        };
        let secrets = SecretValues::default();
        let bootstrap = Bootstrap {
            member,
            role: &role,
            authority: &self.authority,
            spec: &self.spec,
            max_learners: self.max_learners,
            secrets: &secrets,
        };
        let rendered = render(&bootstrap).map_err(|invalid| anyhow!("{}: {}", invalid.field, invalid.problem));
        Ok(rendered.context("render bootstrap data")?.value)
    }
}

fn objects(namespace: &str, name: &str, data: &str) -> [Value; 3] {
    let metadata = json!({"name": name, "namespace": namespace, "labels": {(api::names::CLUSTER_NAME_LABEL): "demo"}});
    // Our Machines have this finalizer from the beginning, so that their first reconcile does more than add it.
    let mut machine = metadata.clone();
    machine["finalizers"] = json!([api::names::MACHINE_FINALIZER]);
    let group = "infrastructure.cluster.x-k8s.io";
    [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": api::names::CLUSTER_SECRET_TYPE,
               "stringData": {"value": data, "format": "cloud-config"}}),
        json!({"apiVersion": format!("{group}/v1alpha1"), "kind": "LocalMachine", "metadata": metadata, "spec": {}}),
        json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": machine, "spec": {
            "clusterName": "demo", "bootstrap": {"dataSecretName": name},
            "infrastructureRef": {"apiGroup": group, "kind": "LocalMachine", "name": name}}}),
    ]
}
