//! What our code does with an object that the API server has accepted, as far as it needs no requests.

use api::{EtcdCluster, EtcdadmConfig, EtcdadmConfigSpec, EtcdadmConfigTemplate};
use controller_support::external::ClusterView;
use etcd_cluster_controller::build::{self, MachineParts};
use etcd_cluster_controller::observation::{Certificates, ClusterLink, Observation, Template};
use etcd_cluster_controller::plan::plan;
use etcd_cluster_controller::status::{differs, status};
use etcdadm_bootstrap::build::{Bootstrap, CertificateAuthority, Role, SecretValues, render};
use k8s_openapi::jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use local_infrastructure::crd::{LocalCluster, LocalMachine, LocalMachineTemplate};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

/// Reads an object as our programs do, and runs their pure code on it: the plan and the status before anything else
/// exists, the objects of a first member, and its bootstrap data.
///
/// # Errors
/// When our types do not accept the object, or the code panics.
pub fn handled(object: &Value) -> Result<(), String> {
    // Nothing that a panic could leave in a broken state outlives it.
    catch_unwind(AssertUnwindSafe(|| handle(object))).unwrap_or_else(|_| Err("our code panics".to_owned()))
}

fn handle(object: &Value) -> Result<(), String> {
    match object["kind"].as_str().unwrap_or_default() {
        "EtcdCluster" => etcd_cluster(read(object)?),
        "EtcdadmConfig" => bootstrap_data(&read::<EtcdadmConfig>(object)?.spec),
        "EtcdadmConfigTemplate" => bootstrap_data(&read::<EtcdadmConfigTemplate>(object)?.spec.template.spec),
        "LocalCluster" => read::<LocalCluster>(object).map(drop)?,
        "LocalMachine" => read::<LocalMachine>(object).map(drop)?,
        "LocalMachineTemplate" => read::<LocalMachineTemplate>(object).map(drop)?,
        other => return Err(format!("nothing handles kind {other:?}")),
    }
    Ok(())
}

/// Reads an object. Written and read again, it has to be the same. (The first read may lose something, such as
/// fractions of a second.)
fn read<T: Serialize + DeserializeOwned>(object: &Value) -> Result<T, String> {
    let read: T =
        serde_json::from_value(object.clone()).map_err(|error| format!("our types do not take it: {error}"))?;
    let written = |read: &T| serde_json::to_value(read).map_err(|error| format!("it cannot be written: {error}"));
    let once = written(&read)?;
    match serde_json::from_value::<T>(once.clone()) {
        Ok(again) if written(&again)? == once => Ok(read),
        Ok(_) => Err("it is another one when it has been written and read".to_owned()),
        Err(error) => Err(format!("what was written cannot be read: {error}")),
    }
}

fn etcd_cluster(etcd: EtcdCluster) {
    bootstrap_data(&etcd.spec.etcdadm_config_spec);
    let infrastructure = ApiResource::from_gvk(&GroupVersionKind::gvk("g.example", "v1", "LocalMachine"));
    let template = template();
    members_objects(&etcd, &infrastructure, &template);

    let etcd = Arc::new(etcd);
    let nowhere = ClusterLink::None { message: "no Cluster names it".to_owned(), living: None };
    let found = Template::Found { template: Arc::new(template), clones: infrastructure };
    let ca = Certificates::Ca { control_plane_ca: true, staged_client: true, expires: None, ca_expires: None };
    for (link, certificates, template) in [
        (nowhere, Certificates::Unknown, Template::Unknown("not looked up".to_owned())),
        (cluster(), Certificates::NoCa, found.clone()),
        (cluster(), ca, found),
    ] {
        let observation = Observation { certificates, template, ..Observation::new(now(), etcd.clone(), link) };
        let decision = plan(&observation);
        black_box(differs(etcd.status.as_ref(), &status(&observation, &decision, None)));
    }
}

/// Builds the objects of a first member.
fn members_objects(etcd: &EtcdCluster, infrastructure: &ApiResource, template: &DynamicObject) {
    let parts = MachineParts {
        etcd,
        cluster: "demo",
        name: "demo-etcd-0",
        infrastructure,
        failure_domain: None,
        replaces: None,
    };
    let config = build::config(&parts);
    bootstrap_data(&config.spec);
    black_box((
        build::machine(&parts, infrastructure),
        build::infrastructure(&parts, template).is_ok(),
        build::matches_config(etcd, &config.spec, None),
        build::replaces_from(etcd),
    ));
}

/// Bootstrap data, or a refusal, for initializing and for joining.
fn bootstrap_data(spec: &EtcdadmConfigSpec) {
    static AUTHORITY: LazyLock<CertificateAuthority> = LazyLock::new(authority);
    let join = Role::Join { client_urls: vec!["https://10.0.0.1:2379".to_owned()], cluster_id: None };
    let secrets = SecretValues::default();
    for role in [&Role::Init { not_after: now() }, &join] {
        let (member, max_learners) = ("demo-etcd-0", Some("3"));
        let bootstrap = Bootstrap { member, role, authority: &AUTHORITY, spec, max_learners, secrets: &secrets };
        black_box(render(&bootstrap).is_ok());
    }
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn cluster() -> ClusterLink {
    let cluster = object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "default", "uid": "cluster-uid"},
        "status": {"initialization": {"infrastructureProvisioned": true}},
    }));
    ClusterLink::One(Box::new(ClusterView::read(&cluster)))
}

fn template() -> DynamicObject {
    object(json!({
        "apiVersion": "g.example/v1", "kind": "LocalMachineTemplate", "metadata": {"name": "demo"},
        "spec": {"template": {"spec": {}}},
    }))
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("it is an object")
}

fn authority() -> CertificateAuthority {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key).expect("it can be signed").pem();
    CertificateAuthority::from_pem(cert.as_bytes(), key.serialize_pem().as_bytes()).expect("it is an authority")
}
