use super::*;
use crate::cli::{Command, parse};
use crate::settings::Settings;

/// A machine with `env` in etcd.env; with data if it is a member.
fn machine(env: &str, member: bool) -> (tempfile::TempDir, Kept) {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    files::write(&at("etc/etcd/etcd.env"), env.as_bytes(), 0o600).unwrap();
    if member {
        std::fs::create_dir_all(at("mnt/etcd/member/wal")).unwrap();
        files::write(&at("srv/bin/etcd"), b"#!/bin/sh\necho etcd Version: 3.5.21\n", 0o755).unwrap();
        let (etcd, data) = (at("srv/bin/etcd"), at("mnt/etcd"));
        let unit = format!("[Unit]\nRequiresMountsFor={}\n[Service]\nExecStart={}\n", data.display(), etcd.display());
        files::write(&at("etc/systemd/system/etcd.service"), unit.as_bytes(), 0o644).unwrap();
    }
    let kept = Kept::load(root.path()).unwrap();
    (root, kept)
}

const ENV: &str = "ETCD_NAME=a\nETCD_INITIAL_ADVERTISE_PEER_URLS=https://127.0.0.5:2380\nETCD_DATA_DIR=/mnt/etcd\nETCD_STRICT_RECONFIG_CHECK=true\nETCD_MAX_LEARNERS=3\n\
    ETCD_TRUSTED_CA_FILE=/srv/pki/ca.crt\nETCD_CIPHER_SUITES=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\nETCD_SNAPSHOT_COUNT=10000\nGOMAXPROCS=2\nETCD_EXPERIMENTAL_COMPACTION_BATCH_LIMIT=100\nETCD_UNSAFE_NO_FSYNC=true\nETCD_ENABLE_GRPC_GATEWAY=false\n";

#[test]
fn without_an_earlier_run_there_are_defaults() {
    let root = tempfile::tempdir().unwrap();
    let kept = Kept::load(root.path()).unwrap();
    assert_eq!(kept.data_dir(None).unwrap(), Path::new("/var/lib/etcd"));
    assert_eq!(kept.install_dir(None), Path::new("/opt/bin"));
    assert_eq!((kept.certs_dir(None), kept.cipher_suites.len()), ("/etc/etcd/pki".into(), 0));
    assert_eq!(kept.version(None).unwrap().to_string(), DEFAULT_ETCD_VERSION);
    assert_eq!(kept.max_learners(Some(3), &EtcdVersion::new(3, 6, 16)).unwrap(), Some(3));
}

#[test]
fn what_is_not_given_is_kept() {
    let (_root, kept) = machine(ENV, true);
    assert_eq!(kept.data_dir(None).unwrap(), Path::new("/mnt/etcd"));
    assert_eq!(kept.install_dir(None), Path::new("/srv/bin"));
    assert_eq!(kept.certs_dir(None), Path::new("/srv/pki"));
    assert_eq!(kept.certs_dir(Some("/x".into())), Path::new("/x"));
    assert_eq!(kept.cipher_suites.len(), 2);
    assert_eq!(kept.version(None).unwrap().to_string(), "3.5.21");
    assert_eq!(kept.max_learners(None, &EtcdVersion::new(3, 6, 16)).unwrap(), Some(3));
    let flags: Vec<_> = kept.etcd_flags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(flags, ["snapshot-count=10000", "experimental-compaction-batch-limit=100"]);
    assert_eq!(kept.flags(&EtcdVersion::new(3, 6, 16)), kept.etcd_flags);
    assert_eq!(kept.flags(&EtcdVersion::new(3, 7, 3)), kept.etcd_flags[..1], "etcd 3.7 does not have the second");
}

/// Its disk may come back, with data that only the old etcd should open.
#[test]
fn a_member_whose_disk_is_not_mounted_keeps_what_it_has() {
    let (root, _) = machine(ENV, true);
    std::fs::remove_dir_all(root.path().join("mnt/etcd")).unwrap();
    assert_eq!(Kept::load(root.path()).unwrap().version(None).unwrap().to_string(), DEFAULT_ETCD_VERSION);
    files::write(&root.path().join("etc/etcd/epoch"), b"one\nbegun\n", 0o600).unwrap();
    let kept = Kept::load(root.path()).unwrap();
    assert_eq!(kept.version(None).unwrap().to_string(), "3.5.21");
    assert!(kept.version(Some(EtcdVersion::new(3, 6, 16))).is_err());
    assert_eq!(kept.name(None).as_deref(), Some("a"));
}

/// If it counted as a machine without data, its learner would be removed.
#[test]
fn a_member_whose_settings_are_gone_is_where_its_unit_says() {
    let (root, _) = machine(ENV, true);
    std::fs::remove_file(root.path().join("etc/etcd/etcd.env")).unwrap();
    let kept = Kept::load(root.path()).unwrap();
    assert_eq!(kept.data_dir(None).unwrap(), Path::new("/mnt/etcd"));
    assert!(kept.data_dir(Some("/var/lib/etcd".into())).is_err());
    assert_eq!(kept.version(None).unwrap().to_string(), "3.5.21");
    // Data alone does not make a member yet: it may be restored data for a first start.
    std::fs::remove_file(root.path().join("etc/systemd/system/etcd.service")).unwrap();
    assert!(Kept::load(root.path()).unwrap().member.is_none());
}

/// Members with different limits drop each other's learners and panic.
#[test]
fn a_member_whose_settings_are_gone_is_told_its_learner_limit() {
    let (root, _) = machine(ENV, true);
    let new = EtcdVersion::new(3, 6, 16);
    let settings = root.path().join("etc/etcd/etcd.env");
    for gone in [|path: &Path| std::fs::remove_file(path), |path: &Path| std::fs::write(path, "")] {
        gone(&settings).unwrap();
        let kept = Kept::load(root.path()).unwrap();
        for limit in [1, 3] {
            assert_eq!(kept.max_learners(Some(limit), &new).unwrap(), Some(limit));
        }
        let message = kept.max_learners(None, &new).unwrap_err().to_string();
        assert!(message.contains("--max-learners 1 if that had none"), "{message}");
        assert_eq!(kept.max_learners(None, &EtcdVersion::new(3, 5, 21)).unwrap(), None);
    }
}

fn settings(args: &[&str], kept: &Kept) -> Settings {
    let line = ["etcdadm", "init"].iter().chain(args).map(Into::into);
    let Command::Init(init) = parse(line).unwrap().command else { unreachable!() };
    Settings::new(init.member, &[], kept).unwrap()
}

#[test]
fn a_member_keeps_its_name_and_address() {
    let (_root, kept) = machine(ENV, true);
    let own = |args: &[&str], kept: &Kept| {
        let settings = settings(args, kept);
        (settings.name, settings.address.to_string())
    };
    assert_eq!(own(&[], &kept), ("a".to_owned(), "127.0.0.5".to_owned()));
    assert_eq!(own(&["--bind-address", "0.0.0.0"], &kept).1, "127.0.0.5", "any of its family");
    let told = own(&["--name", "b", "--bind-address", "127.0.0.6"], &kept);
    assert_eq!(told, ("b".to_owned(), "127.0.0.6".to_owned()));
    let (_root, no_member) = machine(ENV, false);
    assert_ne!(own(&["--bind-address", "127.0.0.6"], &no_member).0, "a");
}

#[test]
fn a_member_keeps_its_data_version_and_learner_limit() {
    let (_root, kept) = machine(ENV, true);
    let message = kept.data_dir(Some("/var/lib/etcd".into())).unwrap_err().to_string();
    assert!(message.contains("/mnt/etcd"), "{message}");
    kept.data_dir(Some("/mnt/etcd/".into())).unwrap();
    let message = kept.version(Some(EtcdVersion::new(3, 6, 16))).unwrap_err().to_string();
    assert!(message.contains("a member with etcd 3.5.21"), "{message}");
    let new = EtcdVersion::new(3, 6, 16);
    let message = kept.max_learners(Some(1), &new).unwrap_err().to_string();
    assert!(message.contains("has started with 3"), "{message}");
    kept.max_learners(Some(3), &new).unwrap();
    kept.max_learners(Some(1), &EtcdVersion::new(3, 5, 21)).unwrap();
}

#[test]
fn a_machine_that_has_not_started_yet_can_be_told_otherwise() {
    let (_root, kept) = machine(ENV, false);
    assert_eq!(kept.data_dir(Some("/data".into())).unwrap(), Path::new("/data"));
    assert_eq!(kept.version(Some(EtcdVersion::new(3, 7, 3))).unwrap(), EtcdVersion::new(3, 7, 3));
    assert_eq!(kept.max_learners(Some(2), &EtcdVersion::new(3, 7, 3)).unwrap(), Some(2));
}

#[test]
fn a_member_whose_program_is_gone_needs_a_version() {
    let (root, _) = machine(ENV, true);
    std::fs::remove_file(root.path().join("srv/bin/etcd")).unwrap();
    let kept = Kept::load(root.path()).unwrap();
    assert!(kept.version(None).unwrap_err().to_string().contains("--version"));
    kept.version(Some(EtcdVersion::new(3, 5, 21))).unwrap();
}
