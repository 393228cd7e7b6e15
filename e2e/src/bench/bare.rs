//! The same three machines with the same bootstrap data, without this project's controllers: what a person with a script
//! would do, one machine after the other.

use super::PATIENCE;
use crate::apply::apply_object;
use crate::bed::{Bed, Look, Manifests};
use crate::until::until;
use anyhow::{Context, Result, anyhow, ensure};
use etcdadm_bootstrap::build::{Bootstrap, CertificateAuthority, Role, SecretValues, render};
use k8s_openapi::jiff::Timestamp;
use local_infrastructure::machine::MachineSpec;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;

/// Applies Machine, LocalMachine and Secret of each member by hand: everything below this project's controllers is the
/// same, Cluster API and its pace included.
pub(super) async fn through_cluster_api(bed: &Bed, namespace: &str) -> Result<Duration> {
    let client = bed.client();
    Look::make_namespace(&client, namespace).await?;
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
    let data = UserData::new()?;
    let begun = Instant::now();
    manifests.apply(&client).await?;
    let look = Look::at(&client, &manifests);
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
    super::remove(bed, &look).await?;
    Ok(took)
}

/// Makes the machines directly: no Cluster API, no API server.
pub(super) async fn machines_alone(bed: &Bed, namespace: &str) -> Result<Duration> {
    let data = UserData::new()?;
    let begun = Instant::now();
    let mut addresses: Vec<Ipv4Addr> = Vec::new();
    for index in 0..MEMBERS {
        let name = format!("demo-etcd-{index}");
        // Beyond what the controllers have given out in this run.
        let address = Ipv4Addr::new(10, 77, 200, 10 + u8::try_from(index)?);
        let machine =
            bed.machines.create(spec(bed, namespace, &name, address)?, data.of(&name, &addresses)?.as_bytes())?;
        machine.power_on()?;
        let outcome =
            until(format!("machine {name} has run its bootstrap data"), PATIENCE, async || Ok(machine.bootstrap()?));
        let outcome = outcome.await?;
        ensure!(outcome.succeeded, "{name}: {:?}", outcome.errors);
        addresses.push(address);
    }
    let took = begun.elapsed();
    for index in 0..MEMBERS {
        bed.machines.destroy(namespace, &format!("demo-etcd-{index}"))?;
    }
    Ok(took)
}

fn spec(bed: &Bed, namespace: &str, name: &str, address: Ipv4Addr) -> Result<MachineSpec> {
    Ok(MachineSpec {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("{namespace}-{name}"),
        host_name: name.to_owned(),
        address,
        prefix_length: crate::world::PREFIX_LENGTH,
        gateway: crate::world::ADDRESS.parse()?,
        bridge: crate::world::BRIDGE.to_owned(),
        image_dir: bed.world().state("image")?,
        program: crate::bed::programs()?.join("local-infrastructure"),
    })
}

/// The bootstrap data that our bootstrap provider would make.
struct UserData {
    authority: CertificateAuthority,
    spec: api::EtcdadmConfigSpec,
}

impl UserData {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        let authority = CertificateAuthority::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes())?;
        let spec = api::EtcdadmConfigSpec { version: Some("3.6.16".to_owned()), ..Default::default() };
        Ok(Self { authority, spec })
    }

    fn of(&self, member: &str, voters: &[Ipv4Addr]) -> Result<String> {
        let client_urls: Vec<String> =
            voters.iter().map(|address| api::names::client_url(&address.to_string())).collect();
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
            max_learners: None,
            secrets: &secrets,
        };
        let rendered = render(&bootstrap).map_err(|invalid| anyhow!("{}: {}", invalid.field, invalid.problem));
        Ok(rendered.context("render bootstrap data")?.value)
    }
}

fn objects(namespace: &str, name: &str, data: &str) -> [Value; 3] {
    let metadata = json!({"name": name, "namespace": namespace, "labels": {(api::names::CLUSTER_NAME_LABEL): "demo"}});
    // As ours have it, so that the Machine's first reconcile is not spent on it.
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
