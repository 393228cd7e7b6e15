use std::path::Path;

use proptest::prelude::*;

use super::env::{Start, initial_cluster};
use super::*;
use crate::etcd::Member;
use crate::settings::tests::example;

fn member(id: u64, name: &str, peer_urls: &[&str]) -> Member {
    let peer_urls = peer_urls.iter().map(|url| (*url).to_owned()).collect();
    Member { id, name: name.to_owned(), peer_urls, client_urls: Vec::new(), learner: false }
}

#[test]
fn env_of_a_first_member() {
    let settings = example();
    let start = Start::New { token: "0123456789abcdef".to_owned() };
    insta::assert_snapshot!(env::render(&settings.paths(Path::new("/")), &settings, &start));
}

#[test]
fn env_of_a_joining_member_with_an_ipv6_address() {
    let mut settings = example();
    settings.address = "fd00::3".parse().unwrap();
    settings.cipher_suites =
        vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned(), "TLS_AES_256_GCM_SHA384".to_owned()];
    let members = [member(1, "etcd-1", &["https://[fd00::1]:2380"]), member(2, "", &["https://[fd00::3]:2380"])];
    let start = Start::Existing { initial_cluster: initial_cluster(&members, 2, "etcd-0").unwrap() };
    insta::assert_snapshot!(env::render(&settings.paths(Path::new("/")), &settings, &start));
}

#[test]
fn env_of_a_first_member_with_an_ipv6_address() {
    let mut settings = example();
    settings.address = "fd00::3".parse().unwrap();
    let start = Start::New { token: "0123456789abcdef".to_owned() };
    let env = env::render(&settings.paths(Path::new("/")), &settings, &start);
    for line in [
        "ETCD_LISTEN_CLIENT_URLS=https://[fd00::3]:2379,https://127.0.0.1:2379",
        "ETCD_ADVERTISE_CLIENT_URLS=https://[fd00::3]:2379",
        "ETCD_LISTEN_PEER_URLS=https://[fd00::3]:2380",
        "ETCD_INITIAL_ADVERTISE_PEER_URLS=https://[fd00::3]:2380",
        "ETCD_INITIAL_CLUSTER=etcd-0=https://[fd00::3]:2380",
        "ETCD_INITIAL_CLUSTER_STATE=new",
    ] {
        assert!(env.lines().any(|there| there == line), "{line} is missing:\n{env}");
    }
    let again = existing::as_existing(&env);
    assert!(again.lines().any(|there| there == "ETCD_INITIAL_CLUSTER=etcd-0=https://[fd00::3]:2380"), "{again}");
    assert!(existing::is_existing(&again), "{again}");
}

#[test]
fn cipher_suites_for_rsa_only_get_what_the_ecdsa_certificates_need() {
    let mut settings = example();
    settings.cipher_suites =
        vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(), "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384".to_owned()];
    let env = env::render(&settings.paths(Path::new("/")), &settings, &Start::Again);
    let suites = env.lines().find_map(|line| line.strip_prefix("ETCD_CIPHER_SUITES=")).unwrap();
    let suites: Vec<&str> = suites.split(',').collect();
    assert_eq!(
        suites,
        [
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        ]
    );
}

#[test]
fn unit() {
    let settings = example();
    insta::assert_snapshot!(unit::render(&settings.paths(Path::new("/"))));
}

#[test]
fn etcdctl_files() {
    let settings = example();
    let paths = settings.paths(Path::new("/"));
    insta::assert_snapshot!(format!("{}-----\n{}", etcdctl::render_env(&paths), etcdctl::render_wrapper(&paths)));
}

#[test]
fn members_of_one_name_stay_apart() {
    let members = [
        member(0xa, "etcd-0", &["https://10.0.0.1:2380"]),
        member(0xb, "same", &["https://10.0.0.2:2380", "https://10.1.0.2:2380"]),
        member(0xc, "same", &["https://10.0.0.3:2380"]),
        member(0xd, "", &["https://10.0.0.4:2380"]),
        member(0xe, "od\nd", &["https://10.0.0.5:2380"]),
    ];
    assert_eq!(
        initial_cluster(&members, 0xd, "etcd-0").unwrap(),
        "a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,b=https://10.1.0.2:2380,c=https://10.0.0.3:2380,\
         etcd-0=https://10.0.0.4:2380,e=https://10.0.0.5:2380"
    );
    let text = initial_cluster(&members, 0xd, "a").unwrap();
    assert!(text.starts_with("a_=https://10.0.0.1:2380,b=") && text.contains(",a=https://10.0.0.4:2380,"), "{text}");
}

/// A member that is starting with a list is restarted when the list changes.
#[test]
fn the_list_is_the_same_when_another_member_has_started_and_is_promoted() {
    let added = [member(0xa, "etcd-0", &["https://10.0.0.1:2380"]), member(0xb, "", &["https://10.0.0.2:2380"])];
    let started = added.clone().map(|member| Member { name: format!("etcd-{}", member.id), ..member });
    let text = |members: &[Member]| initial_cluster(members, 0xb, "etcd-1").unwrap();
    assert_eq!(text(&added), text(&started));
    assert_ne!(text(&added), text(&[&started[..], &[member(0xc, "", &["https://10.0.0.3:2380"])]].concat()));
}

#[test]
fn a_url_that_would_break_the_file_is_refused() {
    let members = [member(0xa, "a", &["https://10.0.0.1:2380\nETCD_DATA_DIR=/"])];
    assert!(initial_cluster(&members, 0xa, "a").unwrap_err().contains("member a"));
}

#[test]
fn files_have_their_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let settings = example();
    let paths = settings.paths(root.path());
    write_all(&paths, &settings, &Start::New { token: "t".to_owned() }).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root.path().join("etc/etcd/etcd.env")), 0o600);
    assert_eq!(mode(&root.path().join("etc/etcd/etcdctl.env")), 0o600);
    assert_eq!(mode(&root.path().join("opt/bin/etcdctl.sh")), 0o755);
    assert_eq!(mode(&root.path().join("etc/systemd/system/etcd.service")), 0o644);
    assert_eq!(mode(&root.path().join("var/lib/etcd")), 0o700);
}

#[test]
fn settings_that_differ_are_named() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = example();
    let paths = settings.paths(root.path());
    assert!(differences(&paths, &settings).unwrap().is_empty());
    write_all(&paths, &settings, &Start::New { token: "t".to_owned() }).unwrap();
    assert!(differences(&paths, &settings).unwrap().is_empty(), "how it first started does not count");
    settings.cipher_suites.push("TLS_AES_256_GCM_SHA384".to_owned());
    settings.name = "other".to_owned();
    assert_eq!(differences(&paths, &settings).unwrap(), ["ETCD_CIPHER_SUITES", "ETCD_NAME"]);
}

proptest! {
    /// etcd refuses to start unless the file lists exactly the cluster's members, each under its own name.
    #[test]
    fn every_member_is_listed_once(names in proptest::collection::vec("[ab=,\n]{0,2}", 1..6), own in 0_usize..6) {
        let members: Vec<Member> = names
            .iter()
            .enumerate()
            .map(|(i, name)| member(i as u64 + 0x100, name, &[&format!("https://10.0.0.{i}:2380")]))
            .collect();
        let own = own % members.len();
        let text = initial_cluster(&members, members[own].id, "a").unwrap();
        let entries: Vec<(&str, &str)> = text.split(',').map(|entry| entry.split_once('=').unwrap()).collect();
        prop_assert_eq!(entries.len(), members.len());
        let distinct: std::collections::HashSet<&str> = entries.iter().map(|(name, _)| *name).collect();
        prop_assert_eq!(distinct.len(), members.len());
        prop_assert_eq!(entries[own], ("a", members[own].peer_urls[0].as_str()));
    }
}
