//! The Secret with the API servers' client certificate, which is published last.

use super::*;

#[test]
fn a_client_secret_that_is_there_already_does_not_lift_the_pause() {
    for etcd_is_gone in [false, true] {
        let mut world = World::applied().etcd_ready();
        world.secrets.clear();
        let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}});
        world.secrets.insert("demo-apiserver-etcd-client".to_owned(), theirs);
        insta::allow_duplicates! {
            insta::assert_snapshot!(world.story(), @r#"
            ClaimEtcd
            Announce
            Pause
            RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
            WriteEndpoints(["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"])
            wait: WaitingForClientCertificate | etcd's provider has not made Secret demo-etcd with etcd's CA certificate yet | Some(10s)
            "#);
        }
        if etcd_is_gone {
            world.etcd = None;
        } else {
            world.set_ready(false, ENDPOINTS);
        }
        assert_eq!(world.settle().0, []);
        assert!(world.paused(), "nothing but our pause holds it back");
    }
}

#[test]
fn secrets_that_are_missing_or_broken_are_waited_for() {
    let full = World::applied().etcd_ready();
    let mut world = full.clone();
    world.secrets.clear();
    insta::assert_snapshot!(world.story(), @r#"
    ClaimEtcd
    Announce
    Pause
    RecordEndpointsInUse(https://10.0.0.1:2379,https://10.0.0.2:2379,https://10.0.0.3:2379)
    WriteEndpoints(["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"])
    wait: WaitingForClientCertificate | etcd's provider has not made Secret demo-etcd with etcd's CA certificate yet | Some(10s)
    "#);
    assert!(world.paused());
    world.secrets.insert("demo-etcd".to_owned(), full.secrets["demo-etcd"].clone());
    insta::assert_snapshot!(world.story(), @"wait: WaitingForClientCertificate | etcd's provider has made neither Secret demo-managed-etcd-apiserver-client nor Secret demo-apiserver-etcd-client yet | Some(10s)");
    let mut half = full.secrets["demo-managed-etcd-apiserver-client"].clone();
    half["data"]["tls.key"] = json!("");
    world.secrets.insert("demo-managed-etcd-apiserver-client".to_owned(), half);
    insta::assert_snapshot!(world.story(), @"wait: WaitingForClientCertificate | Secret demo-managed-etcd-apiserver-client must have tls.crt and tls.key | Some(10s)");
}

#[test]
fn a_client_secret_of_somebody_else_is_used_if_it_is_the_one_that_etcd_gave() {
    let ready = World::applied().etcd_ready();
    let published = |data: &serde_json::Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}, "data": data});
    let staged = ready.secrets["demo-managed-etcd-apiserver-client"]["data"].clone();
    let mut world = ready;
    world.secrets.insert("demo-apiserver-etcd-client".to_owned(), published(&staged));
    let (steps, end) = world.settle();
    assert_eq!(
        steps.iter().map(name).collect::<Vec<_>>(),
        ["ClaimEtcd", "Announce", "Pause", "RecordEndpointsInUse", "WriteEndpoints", "Unpause"]
    );
    assert_eq!(end, Plan::Steady);
    // A renewal does not reach this Secret.
    world.stage("2");
    let Plan::Block(hold) = world.settle().1 else { panic!("it expires under a True condition") };
    assert_eq!(hold.reason, reasons::CLIENT_CERTIFICATE_DIFFERS);
    assert!(hold.message.contains("Delete Secret demo-apiserver-etcd-client"), "{}", hold.message);
    assert_eq!(world.published(), Some(&published(&staged)), "it is not ours to change");
}

#[test]
fn a_client_secret_of_another_ca_keeps_the_control_plane_back() {
    let mut world = World::applied().etcd_ready();
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "demo-apiserver-etcd-client"}});
    world.secrets.insert("demo-apiserver-etcd-client".to_owned(), theirs);
    assert!(matches!(world.settle().1, Plan::Block(hold) if hold.reason == reasons::CLIENT_CERTIFICATE_DIFFERS));
    assert!(world.paused());
    world.secrets.remove("demo-managed-etcd-apiserver-client");
    assert_eq!(world.settle().0, [Step::Unpause], "a provider that publishes it itself is trusted");
}

#[test]
fn a_client_secret_of_an_etcd_that_is_gone_is_made_again() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.etcd.as_mut().unwrap()["metadata"]["uid"] = json!("etcd-2");
    let (steps, _) = world.settle();
    assert_eq!(steps.iter().map(name).collect::<Vec<_>>(), ["UpdateClient"]);
    assert_eq!(world.published().unwrap()["metadata"]["ownerReferences"][0]["uid"], "etcd-2");
}
