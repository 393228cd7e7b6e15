//! An installation and an EtcdCluster without faults, and the findings of each check if something is wrong.

use super::*;
use crate::certificates::Certificate;
use crate::dial::{Figures, Fsyncs};
use crate::fixture::{NOW, Scene};
use crate::gather::crd_names;
use crate::secrets::ValueSummary;
use serde_json::json;
use std::collections::BTreeMap;

/// CRD of the template in the fixture.
const TEMPLATE: &str = "devmachinetemplates.infrastructure.cluster.x-k8s.io";

fn installation() -> Installation {
    let labels = ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2", api::names::ETCD_PROVIDER_CONTRACT_LABEL];
    let crd = |name: String| Crd {
        name,
        labels: labels
            .map(|label| (label, "v1alpha4_v1beta1"))
            .into_iter()
            .chain([("cluster.x-k8s.io/provider", "bootstrap-etcdadm")])
            .map(|(label, value)| (label.to_owned(), value.to_owned()))
            .collect(),
        served: vec!["v1alpha4".to_owned(), "v1beta1".to_owned()],
        storage: "v1beta1".to_owned(),
        stored: vec!["v1beta1".to_owned()],
    };
    let manager = |namespace: &str, image: &str| Manager {
        namespace: namespace.to_owned(),
        name: "manager".to_owned(),
        image: image.to_owned(),
        arguments: Vec::new(),
        service_account: "manager".to_owned(),
        replicas: 1,
        available: 1,
    };
    let all = permissions(&BTreeSet::from([TEMPLATE.to_owned()]));
    Installation {
        namespace: "default".to_owned(),
        now: NOW,
        server_time: Ok(NOW),
        kubernetes: Ok("v1.36.3".to_owned()),
        crds: Ok(crd_names().into_iter().chain([TEMPLATE.to_owned()]).map(crd).collect()),
        policies: Ok(["capi-etcdadm-etcdcluster-deletion", "capi-etcdadm-etcd-endpoints"].map(str::to_owned).into()),
        managers: Ok(vec![manager("capi-etcdadm-system", "r/cluster-api-provider-etcdadm:0.1.0")]),
        core: Ok(vec![manager("capi-system", "r/cluster-api-controller:v1.14.0")]),
        permissions: Ok(all.into_iter().map(|permission| Permission { allowed: true, ..permission }).collect()),
    }
}

fn secret(name: &str, keys: &[&str]) -> SecretSummary {
    let certificate = Certificate {
        subject: "CN=a".to_owned(),
        issuer: "CN=a".to_owned(),
        not_before: NOW,
        not_after: "2027-11-23T08:00:00Z".parse().unwrap(),
        ca: false,
    };
    let value = |key: &&str| {
        let certificates = if *key == "tls.crt" { vec![certificate.clone()] } else { Vec::new() };
        ((*key).to_owned(), ValueSummary { bytes: 100, certificates })
    };
    SecretSummary {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        type_: String::new(),
        created: None,
        deleting: false,
        labels: BTreeMap::new(),
        owners: Vec::new(),
        keys: keys.iter().map(value).collect(),
    }
}

fn subject() -> Subject {
    let scene = Scene::new(3);
    let etcd = scene.etcd.clone();
    let endpoints: Vec<&str> = etcd["status"]["endpoints"].as_str().unwrap().split(',').collect();
    let registration = json!({"nodeRegistration": {"ignorePreflightErrors": ["ExternalEtcdVersion"]}});
    let external = json!({"endpoints": endpoints, "caFile": "/a", "certFile": "/b", "keyFile": "/c"});
    let control_plane = json!({"kind": "KubeadmControlPlane", "metadata": {"name": "demo-control-plane"},
        "spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"external": external}},
            "initConfiguration": registration, "joinConfiguration": registration}}});
    Subject {
        namespace: "default".to_owned(),
        live: Some(etcd.clone()),
        cluster: Ok(Some(scene.cluster)),
        control_plane: Ok(Some(control_plane)),
        template_crd: Ok(Some(TEMPLATE.to_owned())),
        template: Ok(Some(json!({"spec": {"template": {"spec": {}}}}))),
        secrets: Ok(vec![
            secret("demo-managed-etcd", &["tls.crt", "tls.key"]),
            secret("demo-etcd", &["tls.crt"]),
            secret("demo-etcd-init", &["address"]),
            secret("demo-managed-etcd-apiserver-client", &["tls.crt", "tls.key"]),
            secret("demo-apiserver-etcd-client", &["tls.crt", "tls.key"]),
        ]),
        dialed: None,
        metrics: None,
        etcd,
    }
}

#[test]
fn all_is_well() {
    let (subject, installation) = (subject(), installation());
    let found = [of_installation(&installation), of_subject(&subject, &installation)];
    assert!(!found.iter().any(|found| is_faulty(found)));
    let worse = found.iter().flatten().filter(|(_, finding)| finding.verdict > Verdict::Unseen);
    assert_eq!(worse.count(), 0, "{found:#?}");
    insta::assert_snapshot!(
        [lines("Installation", &found[0]), lines("EtcdCluster default/demo-etcd", &found[1])].concat().join("\n")
    );
}

/// Breaks one thing. Returns the findings that this adds.
fn broken(change: impl FnOnce(&mut Subject, &mut Installation)) -> String {
    let (mut subject, mut installation) = (subject(), installation());
    let all = |subject: &Subject, installation: &Installation| {
        [of_installation(installation), of_subject(subject, installation)].concat()
    };
    let before = all(&subject, &installation);
    change(&mut subject, &mut installation);
    let mut after = all(&subject, &installation);
    after.retain(|finding| !before.contains(finding));
    lines(if is_faulty(&after) { "exit status 1" } else { "exit status 0" }, &after).join("\n")
}

/// Sets a value at a path of an object.
fn set(object: &mut Value, pointer: &str, value: Value) {
    *object.pointer_mut(pointer).unwrap() = value;
}

#[test]
fn whatever_is_wrong_is_said_with_what_to_do() {
    type Change = fn(&mut Subject, &mut Installation);
    let external = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external";
    assert!(subject().control_plane.unwrap().unwrap().pointer(external).is_some());
    let cases: [(&str, Change); 35] = [
        ("a CRD is missing", |_, i| i.crds.as_mut().unwrap().retain(|crd| !crd.name.starts_with("etcdclusters"))),
        ("a CRD without its contract", |_, i| {
            i.crds.as_mut().unwrap().iter_mut().for_each(|crd| drop(crd.labels.remove("cluster.x-k8s.io/v1beta2")));
        }),
        ("a CRD of EKS Anywhere", |_, i| {
            let crds = i.crds.as_mut().unwrap();
            let crd = crds.iter_mut().find(|crd| crd.name.starts_with("etcdadmconfigs.")).unwrap();
            let all = [("v1alpha3", "v1alpha3"), ("v1beta1", "v1beta1"), ("provider", "bootstrap-etcdadm-bootstrap")];
            crd.labels = all.map(|(label, value)| (format!("cluster.x-k8s.io/{label}"), value.to_owned())).into();
            crd.served = vec!["v1alpha3".to_owned(), "v1beta1".to_owned()];
        }),
        ("Cluster API is missing", |_, i| i.crds.as_mut().unwrap().retain(|crd| !crd.name.starts_with("machines."))),
        ("CRDs may not be read", |_, i| i.crds = Err("forbidden".to_owned())),
        ("another Cluster API", |_, i| i.core.as_mut().unwrap()[0].image = "r/c:v1.9.4".to_owned()),
        ("no manager", |_, i| i.managers = Ok(Vec::new())),
        ("a manager that does not run", |_, i| i.managers.as_mut().unwrap()[0].available = 0),
        ("a manager of this namespace", |_, i| {
            i.managers.as_mut().unwrap()[0].arguments = vec!["--namespace=default".to_owned()];
        }),
        ("a manager of another namespace", |_, i| {
            i.managers.as_mut().unwrap()[0].arguments = vec!["--namespace=shop".to_owned()];
        }),
        ("a permission is missing", |_, i| i.permissions.as_mut().unwrap()[3].allowed = false),
        ("permissions may not be asked for", |_, i| i.permissions = Err("forbidden".to_owned())),
        ("no policy", |_, i| i.policies.as_mut().unwrap().clear()),
        ("a clock is off", |_, i| i.server_time = Ok("2026-11-23T08:01:00Z".parse().unwrap())),
        ("a long name", |s, _| set(&mut s.etcd, "/metadata/name", json!("e".repeat(51)))),
        ("one replica", |s, _| set(&mut s.etcd, "/spec/replicas", json!(1))),
        ("two replicas", |s, _| set(&mut s.etcd, "/spec/replicas", json!(2))),
        ("another version", |s, _| set(&mut s.etcd, "/spec/etcdadmConfigSpec/version", json!("3.6.17"))),
        ("no version", |s, _| set(&mut s.etcd, "/spec/etcdadmConfigSpec/version", json!("3.6"))),
        ("an old version", |s, _| {
            s.live = None;
            set(&mut s.etcd, "/spec/etcdadmConfigSpec/version", json!("3.4.30"));
        }),
        ("install commands that never run", |s, _| {
            set(
                &mut s.etcd,
                "/spec/etcdadmConfigSpec",
                json!({"etcdadmBuiltin": true, "etcdadmInstallCommands": ["a"]}),
            );
        }),
        ("a kind that is not served", |s, _| s.template_crd = Ok(None)),
        ("no template", |s, _| s.template = Ok(None)),
        ("no Cluster", |s, _| s.cluster = Ok(None)),
        ("a paused Cluster", |s, _| {
            set(s.cluster.as_mut().unwrap().as_mut().unwrap(), "/spec", json!({"paused": true}))
        }),
        ("a control plane for local etcd", |s, _| {
            let spec = json!({"kubeadmConfigSpec": {"clusterConfiguration": {"etcd": {"local": {}}}}});
            set(s.control_plane.as_mut().unwrap().as_mut().unwrap(), "/spec", spec);
        }),
        ("other endpoints, and a path that is none", |s, _| {
            let external = json!({"endpoints": ["https://a:2379"], "caFile": "a", "certFile": "/b", "keyFile": "/c"});
            let at = "/spec/kubeadmConfigSpec/clusterConfiguration/etcd/external";
            set(s.control_plane.as_mut().unwrap().as_mut().unwrap(), at, external);
        }),
        ("preflight is not ignored", |s, _| {
            let at = "/spec/kubeadmConfigSpec/joinConfiguration";
            set(s.control_plane.as_mut().unwrap().as_mut().unwrap(), at, json!({}));
        }),
        ("the CA is gone, and another Secret has a key too many", |s, _| {
            let secrets = s.secrets.as_mut().unwrap();
            secrets.remove(0);
            secrets[0] = secret("demo-etcd", &["tls.crt", "tls.key"]);
        }),
        ("a certificate has expired, and another soon will", |s, i| {
            i.now = "2027-11-01T08:00:00Z".parse().unwrap();
            i.server_time = Ok(i.now);
            let key = s.secrets.as_mut().unwrap()[4].keys.get_mut("tls.crt").unwrap();
            key.certificates[0].not_after = NOW;
            s.live.as_mut().unwrap()["status"]["members"][1]["certificateExpires"] = json!("2027-11-03T08:00:00Z");
        }),
        ("a database that is almost full", |s, _| {
            s.live.as_mut().unwrap()["status"]["members"][1]["databaseSizeBytes"] = json!(1_800_000_000);
        }),
        ("a database beyond a quota of its own", |s, _| {
            s.etcd["spec"]["etcdadmConfigSpec"]["etcd"] = json!({"quotaBackendBytes": 1 << 29});
            s.live.as_mut().unwrap()["status"]["members"][2]["databaseSizeBytes"] = json!(536_870_912);
        }),
        ("a member that does not answer", |s, _| {
            set(s.live.as_mut().unwrap(), "/status/members/1/health", json!("Unhealthy"));
        }),
        ("the certificate for Prometheus has expired, and is asked for", |s, _| {
            let mut metrics = secret("demo-etcd-metrics-client", &["ca.crt", "tls.crt", "tls.key"]);
            metrics.keys.get_mut("tls.crt").unwrap().certificates[0].not_after = NOW;
            s.secrets.as_mut().unwrap().push(metrics);
            s.etcd["spec"]["metricsClientSecret"] = json!(true);
        }),
        ("ports that this computer asks", |s, _| {
            let dialed = |member: &str, address: &str, answer| Dialed {
                member: member.to_owned(),
                address: address.to_owned(),
                answer,
            };
            s.dialed = Some(vec![
                dialed("demo-etcd-0", "10.77.0.11:2379", Ok("2027-11-23T08:00:00Z".parse().ok())),
                dialed("demo-etcd-1", "10.77.0.12:2379", Ok(None)),
                dialed("demo-etcd-0", "10.77.0.11:2380", Ok("2026-11-30T08:00:00Z".parse().ok())),
                dialed("demo-etcd-1", "10.77.0.12:2380", Err("Connection refused (os error 111)".to_owned())),
            ]);
        }),
    ];
    let all = cases.map(|(what, change)| format!("==== {what}\n{}", broken(change)));
    assert!(all.iter().all(|said| said.lines().count() > 2), "{all:#?}");
    insta::assert_snapshot!(all.join("\n"));
}

/// Disks are judged, or a finding says why not.
#[test]
fn disks_are_spoken_of_once() {
    let spoken_of = |metrics: Option<Read<Vec<MemberMetrics>>>| -> Vec<(&'static str, Verdict)> {
        let all = of_subject(&Subject { metrics, ..subject() }, &installation());
        let of_disks = all.into_iter().filter(|(_, finding)| finding.seen.contains("disk"));
        of_disks.map(|(check, finding)| (check, finding.verdict)).collect()
    };
    let fsyncs = Some(Fsyncs { count: 100.0, within: 0.002 });
    let told = MemberMetrics { member: "demo-etcd-0".to_owned(), answer: Ok(Figures { ahead: 0, fsyncs }) };
    assert_eq!(spoken_of(None), [("database", Verdict::Unseen)]);
    assert_eq!(spoken_of(Some(Err("spec.metricsClientSecret is not true".to_owned()))), [("clocks", Verdict::Unseen)]);
    assert_eq!(spoken_of(Some(Ok(vec![told]))), [("disks", Verdict::Ok)]);
}

#[test]
fn a_certificate_for_prometheus_that_nobody_asks_for_may_expire() {
    let said = broken(|subject, _| {
        let mut metrics = secret("demo-etcd-metrics-client", &["ca.crt", "tls.crt", "tls.key"]);
        metrics.keys.get_mut("tls.crt").unwrap().certificates[0].not_after = NOW;
        subject.secrets.as_mut().unwrap().push(metrics);
    });
    assert_eq!(said, "exit status 0");
}

#[test]
fn every_request_of_the_role_is_asked_for() {
    let all = permissions(&BTreeSet::new());
    assert!(all.len() > 35, "{all:?}");
    let has = |all: &[Permission], group: &str, resource: &str, verb: &str| {
        all.iter().any(|found| {
            (found.group.as_str(), found.resource.as_str(), found.verb.as_str()) == (group, resource, verb)
        })
    };
    assert!(has(&all, "", "secrets", "watch") && has(&all, "cluster.x-k8s.io", "machines", "create"));
    assert!(!all.iter().any(|found| found.resource == "*"));
    // With two infrastructures, the manager needs the requests for both.
    let with = permissions(&BTreeSet::from(["xmachinetemplates.g.io", "ymachinetemplates.h.io"].map(str::to_owned)));
    assert_eq!(with.len(), all.len() + 12);
    for (group, kind) in [("g.io", "xmachine"), ("h.io", "ymachine")] {
        assert!(has(&with, group, &format!("{kind}templates"), "patch"), "{with:?}");
        assert!(has(&with, group, &format!("{kind}s"), "create"), "{with:?}");
    }
}
