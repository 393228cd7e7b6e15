//! The hook checks what kubeadm requires before it releases the control plane, and never afterwards.

use super::*;

fn held(world: &mut World) -> (&'static str, String) {
    match world.settle().1 {
        Plan::Wait(hold) | Plan::Block(hold) => (hold.reason, hold.message),
        other => panic!("{other:?}"),
    }
}

fn external(world: &mut World) -> &mut serde_json::Value {
    &mut world.control_plane.as_mut().unwrap()["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]["etcd"]["external"]
}

fn secret(name: &str, data: &serde_json::Value) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data})
}

#[test]
fn a_path_that_cannot_work_is_told_before_etcd_is_ready_and_forgotten_when_corrected() {
    let mut world = World::applied();
    external(&mut world)["certFile"] = json!("client.crt");
    insta::assert_snapshot!(world.story(), @r"
    ClaimEtcd
    Announce
    Pause
    block: ControlPlaneInvalid | KubeadmControlPlane demo-cp: spec.kubeadmConfigSpec.clusterConfiguration.etcd.external.certFile must be an absolute path; usual are /etc/kubernetes/pki/etcd/ca.crt, /etc/kubernetes/pki/apiserver-etcd-client.crt and /etc/kubernetes/pki/apiserver-etcd-client.key | None
    ");
    let mut world = world.etcd_ready();
    assert_eq!(held(&mut world).0, reasons::CONTROL_PLANE_INVALID);
    assert!(world.paused() && world.published().is_none());
    external(&mut world)["certFile"] = json!("/etc/etcd/client.crt");
    assert_eq!(world.settle().1, Plan::Steady);
    assert!(!world.paused());
    // A released control plane is not held back again: kubeadm has accepted the fields, or will report the problem
    // itself.
    external(&mut world)["certFile"] = json!("client.crt");
    assert_eq!(world.settle(), (vec![], Plan::Steady));
}

#[test]
fn no_endpoint_is_waited_for_as_long_as_the_infrastructure_may_give_one() {
    let mut world = World::applied().etcd_ready();
    world.cluster["spec"]["controlPlaneEndpoint"] = json!({"host": "", "port": 0});
    let (reason, message) = held(&mut world);
    assert_eq!(reason, reasons::WAITING_FOR_CONTROL_PLANE_ENDPOINT);
    assert!(message.contains("may set one"), "{message}");
    assert!(world.paused() && world.published().is_none());
    world.cluster["status"] = json!({"initialization": {"infrastructureProvisioned": true}});
    let (_, message) = held(&mut world);
    assert!(message.contains("set host and port"), "{message}");
    world.cluster["spec"]["controlPlaneEndpoint"] = json!({"host": "10.0.0.100", "port": 6443});
    assert_eq!(world.settle().1, Plan::Steady);
}

#[test]
fn what_etcd_waits_for_comes_before_an_endpoint_that_may_still_come() {
    let mut world = World::applied();
    world.cluster["spec"]["controlPlaneEndpoint"] = json!(null);
    assert_eq!(held(&mut world).0, reasons::WAITING_FOR_ETCD);
}

#[test]
fn endpoints_that_kubeadm_refuses_are_never_written() {
    let mut world = World::applied().etcd_ready();
    world.set_ready(true, "https://10.0.0.1:2379,http://10.0.0.2:2379");
    let (reason, message) = held(&mut world);
    assert_eq!(reason, reasons::ETCD_ENDPOINTS_INVALID);
    assert!(message.contains("\"http://10.0.0.2:2379\"") && message.contains("EtcdCluster demo-etcd"), "{message}");
    assert_eq!((world.endpoints().as_str(), world.in_use()), (names::PLACEHOLDER_ENDPOINT, None));
    world.set_ready(true, ENDPOINTS);
    assert_eq!(world.settle().1, Plan::Steady);
    world.set_ready(true, "10.0.0.1:2379");
    assert_eq!(held(&mut world).0, reasons::ETCD_ENDPOINTS_INVALID);
    assert_eq!(world.endpoints(), ENDPOINTS, "also when it is running");
}

#[test]
fn shared_certificates_that_users_bring_have_to_be_complete() {
    let full = World::applied().etcd_ready();
    let (certificate, key) = (json!({"tls.crt": "YQ=="}), json!({"tls.key": "YQ=="}));
    for name in ["demo-ca", "demo-sa", "demo-proxy"] {
        let mut world = full.clone();
        world.secrets.insert(name.to_owned(), secret(name, &key));
        let (reason, message) = held(&mut world);
        assert_eq!(reason, reasons::SHARED_CERTIFICATES_INVALID);
        assert!(message.starts_with(&format!("Secret {name} has no tls.crt")), "{message}");
        assert!(world.paused() && world.published().is_none());

        world.secrets.insert(name.to_owned(), secret(name, &certificate));
        let (_, message) = held(&mut world);
        assert!(message.contains("tls.key") && message.contains("only the first"), "{message}");
        // A single machine is replaced by one that joins, as soon as etcd's endpoints change.
        let mut single = world.clone();
        single.control_plane.as_mut().unwrap()["spec"]["replicas"] = json!(1);
        assert_eq!(held(&mut single).0, reasons::SHARED_CERTIFICATES_INVALID);

        world.secrets.insert(name.to_owned(), secret(name, &json!({"tls.crt": "YQ==", "tls.key": "YQ=="})));
        assert_eq!(world.settle().1, Plan::Steady);
    }
}

#[test]
fn etcds_ca_comes_without_its_key() {
    let mut world = World::applied().etcd_ready();
    world.secrets.get_mut("demo-etcd").unwrap()["data"]["tls.key"] = json!("YQ==");
    let (reason, message) = held(&mut world);
    assert_eq!(reason, reasons::SHARED_CERTIFICATES_INVALID);
    assert!(message.starts_with("Secret demo-etcd has a tls.key"), "{message}");
}

#[test]
fn a_provider_that_publishes_itself_is_held_by_the_pause_alone() {
    let mut world = World::applied().etcd_ready();
    let pair = json!({"tls.crt": "YQ==", "tls.key": "YQ=="});
    world.secrets.remove("demo-managed-etcd-apiserver-client");
    world.secrets.insert("demo-apiserver-etcd-client".to_owned(), secret("demo-apiserver-etcd-client", &pair));
    world.secrets.insert("demo-ca".to_owned(), secret("demo-ca", &json!({})));
    assert_eq!(held(&mut world).0, reasons::SHARED_CERTIFICATES_INVALID);
    assert!(world.paused());
    world.secrets.remove("demo-ca");
    assert_eq!(world.settle().0, [Step::Unpause]);
}
