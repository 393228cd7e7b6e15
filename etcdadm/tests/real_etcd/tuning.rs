//! A user's settings arrive in etcd, whatever its version, and stay when etcdadm runs again without them.

use std::process::Command;

use etcd_values::{flag_exists, user_flags};
use serde_json::{Value, json};

use crate::machine::{Machine, Network};
use crate::releases::{all_releases, releases};

/// The line of etcd's log that lists its settings at the start.
const STARTING: &str = "starting an etcd server";

fn metrics_url(machine: &Machine) -> String {
    format!("http://{}:2381", machine.address)
}

/// Each setting that has rules of its own, and one more flag.
fn tuned(machine: Machine) -> Machine {
    let metrics = format!("listen-metrics-urls={}", metrics_url(&machine));
    let flags = [
        "quota-backend-bytes=67108864",
        "heartbeat-interval=120",
        "election-timeout=1200",
        "snapshot-count=4321",
        "auto-compaction-mode=periodic",
        "auto-compaction-retention=90m",
        metrics.as_str(),
        "max-request-bytes=3145728",
    ];
    flags.into_iter().fold(machine, |machine, flag| machine.with(&["--etcd-flag", flag]))
}

/// The same settings as etcd logs them. None of them is a default.
fn in_the_log(machine: &Machine) -> Value {
    json!({
        "quota-backend-bytes": 67_108_864,
        "heartbeat-interval": "120ms",
        "election-timeout": "1.2s",
        "snapshot-count": 4321,
        "auto-compaction-mode": "periodic",
        "auto-compaction-interval": "1h30m0s",
        "listen-metrics-urls": [metrics_url(machine)],
        "max-request-bytes": 3_145_728,
    })
}

/// Checks the settings of each start of etcd, and returns the number of starts.
fn starts_as_tuned(machine: &Machine) -> usize {
    let (log, wanted) = (machine.log(), in_the_log(machine));
    let starts: Vec<&str> = log.lines().filter(|line| line.contains(STARTING)).collect();
    for line in &starts {
        let said: Value = serde_json::from_str(line).unwrap();
        let names = wanted.as_object().unwrap().keys();
        let said: Value = names.map(|name| (name.clone(), said[name].clone())).collect();
        assert_eq!(said, wanted, "{line}");
    }
    starts.len()
}

async fn metrics(machine: &Machine) -> String {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    client.get(format!("{}/metrics", metrics_url(machine))).send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_arrives_in_etcd_and_stays() {
    for release in releases() {
        let network = Network::new(&release);
        let mut first = tuned(network.machine(1));
        first.init().await.unwrap();
        let mut second = tuned(network.machine(2)).with_authority_of(&first);
        second.join(&[&first]).await.unwrap();
        // With a third member, any one of them may be down.
        let third = tuned(network.machine(3)).with_authority_of(&first);
        third.join(&[&first]).await.unwrap();
        for member in [&first, &second, &third] {
            assert!(starts_as_tuned(member) > 0, "etcd {} does not say how it starts", release.version);
            let metrics = metrics(member).await;
            assert!(metrics.contains("\netcd_server_quota_backend_bytes 6.7108864e+07\n"), "{metrics}");
        }

        let before = [starts_as_tuned(&first), starts_as_tuned(&second)];
        first.flags.truncate(2);
        first.stop();
        first.init().await.unwrap();
        second.flags.truncate(2);
        second.stop();
        second.join(&[&first]).await.unwrap();
        let after = [starts_as_tuned(&first), starts_as_tuned(&second)];
        assert!(after[0] > before[0] && after[1] > before[1], "etcd {} started {before:?}, {after:?}", release.version);
        for member in [&first, &second] {
            assert!(metrics(member).await.contains("etcd_server_quota_backend_bytes"));
        }
    }
}

/// The certificates of members have ECDSA keys. With only the listed suites, no connection with TLS 1.2 would be
/// possible.
#[tokio::test(flavor = "multi_thread")]
async fn members_with_cipher_suites_for_rsa_only_serve_and_find_each_other() {
    let suites = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1).with(&["--cipher-suites", suites]);
        first.speaks_tls_1_2();
        first.init().await.unwrap();
        let second = network.machine(2).with(&["--cipher-suites", suites]).with_authority_of(&first);
        second.speaks_tls_1_2();
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), ["m1", "m2"]);
        first.asks(&["put", "x", "here"]);
        assert_eq!(second.asks(&["get", "x", "--print-value-only"]), "here\n");
        for member in [&first, &second] {
            assert!(member.log().contains(&format!("\"cipher-suites\":[\"{}\"", suites.replace(',', "\",\""))));
        }
    }
}

/// etcd reads its command line before it prints its version.
#[test]
fn every_release_has_the_flags_that_it_is_said_to_have() {
    for release in all_releases() {
        let has = |flag: &str| {
            let mut etcd = Command::new(release.programs.join("etcd"));
            let output = etcd.args([&format!("--{flag}=x"), "--version"]).output().unwrap();
            !String::from_utf8(output.stderr).unwrap().contains("flag provided but not defined")
        };
        let version = release.version.parse().unwrap();
        let wrong: Vec<_> =
            user_flags().into_iter().filter(|flag| has(flag) != flag_exists(flag, &version).is_ok()).collect();
        assert_eq!(wrong, Vec::<String>::new(), "etcd {version}");
        assert!(!has("no-such-flag"));
    }
}
