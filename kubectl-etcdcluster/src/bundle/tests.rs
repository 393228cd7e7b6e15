//! A whole report, and the proof that it contains no secret.

use super::*;
use crate::fixture::{NOW, Scene};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use proptest::prelude::*;
use serde_json::json;
use std::io::Read as _;

/// A report on a cluster with `secret` in every place that may hold a secret.
fn material(secret: &str) -> Material {
    let mut scene = Scene::new(3);
    scene.fails(1, "2026-11-23T07:59:20Z");
    scene.etcd["spec"]["etcdadmConfigSpec"] = json!({
        "version": "3.6.16",
        "files": [{"path": "/etc/a", "content": secret}],
        "users": [{"name": "me", "passwd": secret, "sshAuthorizedKeys": [secret]}],
        "proxy": {"httpProxy": format!("http://me:{secret}@proxy:3128")},
        "preEtcdadmCommands": ["modprobe tls", format!("login --password {secret}"), format!("export API_TOKEN='{secret}'")]
    });
    scene.etcd["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!(secret);
    let values = |keys: &[&str]| keys.iter().map(|key| ((*key).to_owned(), ByteString(secret.into()))).collect();
    let mut secrets = ["demo-managed-etcd", "demo-etcd-0"].map(|name| -> Secret {
        let metadata =
            json!({"name": name, "namespace": "default", "labels": {"cluster.x-k8s.io/cluster-name": "demo"}});
        serde_json::from_value(json!({"metadata": metadata, "type": "cluster.x-k8s.io/secret"})).unwrap()
    });
    secrets[0].data = Some(values(&["tls.crt", "tls.key"]));
    secrets[1].data = Some(values(&["value"]));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "manager-0", "namespace": "system",
        "managedFields": [{"manager": secret}]},
        "spec": {"containers": [{"name": "manager", "args": [format!("--proxy=http://me:{secret}@p")],
            "env": [{"name": "PROXY_PASSWORD", "value": secret}]}]}});
    let log = |previous| Log {
        namespace: "system".to_owned(),
        pod: "manager-0".to_owned(),
        previous,
        text: format!(
            "{{\"level\":\"INFO\",\"message\":\"starting\"}}\n{{\"message\":\"x\",\"password\":\"{secret}\"}}\n"
        ),
    };
    let objects = [vec![scene.etcd.clone(), scene.cluster.clone(), pod], scene.machines.clone(), scene.configs.clone()];
    let snapshot = scene.read();
    Material {
        objects: objects.concat(),
        secrets: secrets.iter().map(SecretSummary::new).collect(),
        events: vec![Event {
            at: serde_json::from_value(json!("2026-11-23T07:59:20Z")).unwrap(),
            warning: true,
            reason: "MemberUnhealthy".to_owned(),
            about: "EtcdCluster demo-etcd".to_owned(),
            note: format!("https://me:{secret}@10.77.0.12:2379: no answer"),
        }],
        logs: vec![log(false), log(true)],
        versions: Versions { plugin: "0.1.0".to_owned(), kubernetes: "v1.36.3".to_owned(), ..Versions::default() },
        unread: vec!["MachineHealthChecks: forbidden".to_owned()],
        snapshot,
    }
}

/// All files in one text, each below its path.
fn whole(files: &[File]) -> String {
    files.iter().map(|file| format!("==== {}\n{}", file.path, file.text)).collect()
}

#[test]
fn a_whole_report() {
    insta::assert_snapshot!(whole(&files(&material("Hunter2-And-Then-Some"))));
}

#[test]
fn an_archive_has_the_files_and_is_the_same_every_time() {
    let files = files(&material("Hunter2-And-Then-Some"));
    let name = name("demo-etcd", NOW);
    assert_eq!(name, "etcdcluster-report-demo-etcd-20261123T080000Z");
    let packed = archive(&name, &files, NOW).unwrap();
    assert_eq!(packed, archive(&name, &files, NOW).unwrap());
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
    let found = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().strip_prefix(&name).unwrap().to_string_lossy().into_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        File { path, text }
    });
    assert_eq!(found.collect::<Vec<_>>(), files);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// No file contains the secret or its encoding, whatever the secret is.
    #[test]
    fn no_secret_is_in_a_report(secret in "[A-Za-z0-9][A-Za-z0-9!$%*.~-]{7,40}") {
        let all = whole(&files(&material(&secret)));
        let encoded = serde_json::to_value(ByteString(secret.clone().into_bytes())).unwrap();
        prop_assert!(!all.contains(&secret), "{all}");
        prop_assert!(!all.contains(encoded.as_str().unwrap()), "{all}");
    }
}
