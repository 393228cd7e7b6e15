//! The rendered documents: snapshots, and what must hold for every input.

mod running;

use super::*;
use api::etcdadm_config::{
    AutoCompactionMode, CloudInitConfig, Encoding, EtcdFlag, EtcdSettings, File, Ntp, Proxy, RegistryMirror, SecretKey,
    SecretSource, User,
};
use base64::Engine as _;
use proptest::prelude::*;
use rstest::rstest;
use std::collections::BTreeMap;

const CERT: &str = include_str!("testdata/rsa-ca.crt");
const KEY: &str = include_str!("testdata/rsa-ca.key");

fn authority() -> CertificateAuthority {
    CertificateAuthority::from_pem(CERT.as_bytes(), KEY.as_bytes()).unwrap()
}

fn render_as(role: &Role, spec: &EtcdadmConfigSpec, secrets: &SecretValues) -> Result<String, InvalidField> {
    render_with(role, spec, secrets, None)
}

fn render_with(
    role: &Role,
    spec: &EtcdadmConfigSpec,
    secrets: &SecretValues,
    max_learners: Option<&str>,
) -> Result<String, InvalidField> {
    let authority = authority();
    let bootstrap = Bootstrap { member: "demo-etcd-0", role, authority: &authority, spec, max_learners, secrets };
    render(&bootstrap).map(|rendered| rendered.value)
}

fn render_init(spec: &EtcdadmConfigSpec) -> Result<String, InvalidField> {
    render_as(&first(), spec, &SecretValues::default())
}

fn first() -> Role {
    Role::Init { not_after: "2026-01-31T12:00:00.5Z".parse().unwrap() }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn source(name: &str, key: &str) -> SecretSource {
    SecretSource { secret: SecretKey { name: name.to_owned(), key: key.to_owned() } }
}

fn file(path: &str, content: &str) -> File {
    File {
        path: path.to_owned(),
        content: Some(content.to_owned()),
        owner: None,
        permissions: None,
        encoding: None,
        append: None,
        content_from: None,
    }
}

fn flag(name: &str, value: &str) -> EtcdFlag {
    EtcdFlag { name: name.to_owned(), value: value.to_owned() }
}

fn docker(spec: EtcdadmConfigSpec) -> EtcdadmConfigSpec {
    let modules = CloudInitModules::WriteFilesAndRunCmd;
    let cloud_init_config = Some(CloudInitConfig { modules, ..spec.cloud_init_config.unwrap_or_default() });
    EtcdadmConfigSpec { cloud_init_config, ..spec }
}

/// A spec with every field, for both kinds of cloud-config.
fn everything() -> (EtcdadmConfigSpec, SecretValues) {
    let mut secrets = SecretValues::default();
    secrets.insert(&source("demo-files", "motd").secret, b"made of \xff bytes\n".to_vec());
    let spec = EtcdadmConfigSpec {
        etcdadm_builtin: Some(false),
        etcdadm_install_commands: strings(&["curl -fsSLo /usr/local/bin/etcdadm https://mirror.example/etcdadm"]),
        pre_etcdadm_commands: strings(&[
            "hostnamectl set-hostname \"{{ ds.meta_data.local_hostname }}\"",
            "docker ps --format '{{ .Names }}' # {% raw %}",
        ]),
        post_etcdadm_commands: strings(&["echo done\necho \"it's {{ v1[\"region\"] }}\""]),
        files: vec![
            File {
                owner: Some("operator:operator".to_owned()),
                permissions: Some("0600".to_owned()),
                ..file("/etc/motd", "{{ not a template }}\n$HOME `id`\n")
            },
            File {
                content: None,
                content_from: Some(source("demo-files", "motd")),
                append: Some(true),
                ..file("/etc/issue", "")
            },
            File { encoding: Some(Encoding::Base64), ..file("/opt/greeting", "aGVs\nbG8=\n") },
        ],
        cipher_suites: Some("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()),
        proxy: Some(Proxy {
            http_proxy: Some("http://user:p%40ss@proxy.example:3128".to_owned()),
            https_proxy: Some("http://proxy.example:3128".to_owned()),
            no_proxy: strings(&["10.0.0.0/8", ".svc"]),
        }),
        registry_mirror: Some(RegistryMirror {
            endpoint: "mirror.example:5000/v2/all".to_owned(),
            ca_cert: Some(CERT.to_owned()),
        }),
        cloud_init_config: Some(CloudInitConfig {
            etcd_release_url: Some("https://mirror.example/etcd?a=1&b=2".to_owned()),
            install_dir: Some("/opt/etcd bin/".to_owned()),
            ..CloudInitConfig::default()
        }),
        version: Some("v3.6.16".to_owned()),
        etcd: Some(EtcdSettings {
            quota_backend_bytes: Some(8 * 1024 * 1024 * 1024),
            heartbeat_interval_milliseconds: Some(200),
            election_timeout_milliseconds: Some(2000),
            snapshot_count: Some(20_000),
            auto_compaction_mode: Some(AutoCompactionMode::Revision),
            auto_compaction_retention: Some("1000".to_owned()),
            listen_metrics_urls: strings(&["http://0.0.0.0:2381", "http://[::1]:2382"]),
            extra_flags: vec![flag("max-request-bytes", "3145728"), flag("experimental-corrupt-check-time", "12h")],
        }),
        etcdadm_args: [("data-dir", "/var/lib/etcd"), ("server-cert-extra-sans", "etcd.example,it's")]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        ..EtcdadmConfigSpec::default()
    };
    (spec, secrets)
}

fn everything_for_cloud_init() -> (EtcdadmConfigSpec, SecretValues) {
    let (mut spec, mut secrets) = everything();
    secrets.insert(&source("demo-users", "operator").secret, b"$6$salt$hash\n".to_vec());
    spec.users = vec![
        User {
            name: "operator".to_owned(),
            gecos: Some("J\u{fc}rgen {{ ds.x }}, #1".to_owned()),
            groups: Some("adm,systemd-journal".to_owned()),
            home_dir: Some("/home/operator".to_owned()),
            shell: Some("/bin/bash".to_owned()),
            passwd_from: Some(source("demo-users", "operator")),
            primary_group: Some("operator".to_owned()),
            lock_password: Some(false),
            sudo: Some("ALL=(ALL) NOPASSWD:ALL".to_owned()),
            ssh_authorized_keys: strings(&["ssh-ed25519 AAAA operator@example"]),
            ..User::default()
        },
        User { name: "former".to_owned(), inactive: Some(true), passwd: Some("!".to_owned()), ..User::default() },
    ];
    spec.ntp = Some(Ntp { servers: strings(&["0.pool.example", "fd00::7", "0.pool.example"]), enabled: Some(false) });
    (spec, secrets)
}

fn join() -> Role {
    let client_urls = strings(&["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://[fd00::3]:2379"]);
    Role::Join { client_urls, cluster_id: Some(0xc1) }
}

#[test]
fn minimal_init() {
    insta::assert_snapshot!(render_init(&EtcdadmConfigSpec::default()).unwrap());
}

#[test]
fn minimal_join() {
    insta::assert_snapshot!(render_as(&join(), &EtcdadmConfigSpec::default(), &SecretValues::default()).unwrap());
}

#[test]
fn every_field() {
    let (spec, secrets) = everything_for_cloud_init();
    insta::assert_snapshot!(render_with(&join(), &spec, &secrets, Some("3")).unwrap());
}

#[test]
fn every_field_for_docker() {
    let (spec, secrets) = everything();
    insta::assert_snapshot!(render_as(&join(), &docker(spec), &secrets).unwrap());
}

#[test]
fn nothing_secret_is_in_debug_output() {
    let (spec, secrets) = everything_for_cloud_init();
    let authority = authority();
    let role = first();
    let bootstrap = Bootstrap {
        member: "m",
        role: &role,
        authority: &authority,
        spec: &spec,
        max_learners: None,
        secrets: &secrets,
    };
    let shown = format!("{bootstrap:?} {:?}", render(&bootstrap).unwrap());
    assert!(!shown.contains("PRIVATE") && !shown.contains("$6$") && !shown.contains("[109, "), "{shown}");
}

/// A document as cloud-init's modules get it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    write_files: Vec<DocumentFile>,
    runcmd: Vec<String>,
    #[serde(default)]
    users: Vec<BTreeMap<String, serde_yaml::Value>>,
    #[serde(default)]
    ntp: BTreeMap<String, serde_yaml::Value>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct DocumentFile {
    path: String,
    owner: String,
    permissions: String,
    encoding: String,
    content: String,
    #[serde(default)]
    append: bool,
    #[serde(default)]
    defer: bool,
}

impl Document {
    fn read(text: &str) -> Self {
        serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    fn content(&self, path: &str) -> Vec<u8> {
        let file = self.write_files.iter().find(|file| file.path == path).unwrap();
        let joined = file.content.replace('\n', "");
        base64::engine::general_purpose::STANDARD.decode(joined).unwrap()
    }
}

#[test]
fn files_of_new_users_are_written_after_the_users() {
    let (spec, secrets) = everything_for_cloud_init();
    let document = Document::read(&render_as(&first(), &spec, &secrets).unwrap());
    let deferred: Vec<&str> = document.write_files.iter().filter(|f| f.defer).map(|f| f.path.as_str()).collect();
    assert_eq!(deferred, ["/etc/motd"]);
    assert!(document.write_files.iter().any(|f| f.append && f.path == "/etc/issue"));
    assert_eq!(document.content("/etc/issue"), b"made of \xff bytes\n");
    assert_eq!(document.content("/opt/greeting"), b"hello");
}

#[test]
fn gzip_is_left_to_cloud_init() {
    let compressed = base64::engine::general_purpose::STANDARD.encode([0x1f, 0x8b, 8, 0]);
    let file = File { encoding: Some(Encoding::GzipBase64), ..file("/opt/x", &compressed) };
    let document =
        Document::read(&render_init(&EtcdadmConfigSpec { files: vec![file], ..Default::default() }).unwrap());
    let written = document.write_files.last().unwrap();
    assert_eq!((written.encoding.as_str(), document.content("/opt/x")), ("gz+base64", vec![0x1f, 0x8b, 8, 0]));
}

#[rstest]
#[case("/etc//etcd/pki/ca.key", "without")]
#[case("/etc/./etcd/x", "without")]
#[case("/run/../etc/etcd/x", "without")]
#[case("etc/x", "absolute")]
#[case("/etc/x/", "without")]
#[case("/etc/etcd/pki/ca.key", "below /etc/etcd/")]
#[case("/run/cluster-api/x", "below /run/cluster-api/")]
#[case("/etc/a\0b", "NUL")]
fn paths_of_the_bootstrap_cannot_be_reached(#[case] path: &str, #[case] message: &str) {
    let spec = EtcdadmConfigSpec { files: vec![file("/etc/ok", ""), file(path, "")], ..Default::default() };
    let error = render_init(&spec).unwrap_err();
    assert_eq!(error.field, "spec.files[1].path");
    assert!(error.problem.contains(message), "{error}");
}

#[test]
fn a_path_below_a_directory_of_a_similar_name_is_the_users() {
    let spec = EtcdadmConfigSpec { files: vec![file("/etc/etcd-backup/x", "")], ..Default::default() };
    assert!(render_init(&spec).is_ok());
}

fn invalid_files(mut change: impl FnMut(&mut File)) -> String {
    let mut bad = file("/etc/x", "x");
    change(&mut bad);
    render_init(&EtcdadmConfigSpec { files: vec![bad], ..Default::default() }).unwrap_err().to_string()
}

#[test]
fn errors_name_the_field_and_not_the_value() {
    assert_eq!(
        invalid_files(|f| (f.encoding, f.content) = (Some(Encoding::Base64), Some("se!cret".to_owned()))),
        "spec.files[0].content: is not Base64: unexpected character at 2"
    );
    assert_eq!(
        invalid_files(|f| f.encoding = Some(Encoding::Gzip)),
        "spec.files[0].content: is not compressed by gzip, as its encoding says"
    );
    let spec = EtcdadmConfigSpec { files: vec![file("/etc/x", ""), file("/etc/x", "")], ..Default::default() };
    assert_eq!(
        render_init(&spec).unwrap_err().to_string(),
        "spec.files[1].path: /etc/x is written by spec.files[0] already"
    );
    let spec = EtcdadmConfigSpec { version: Some("3.6".to_owned()), ..Default::default() };
    assert_eq!(render_init(&spec).unwrap_err().field, "spec.version");
    let spec = EtcdadmConfigSpec { pre_etcdadm_commands: strings(&["a", "b\0"]), ..Default::default() };
    assert_eq!(render_init(&spec).unwrap_err().field, "spec.preEtcdadmCommands[1]");
    let ntp = Some(Ntp { servers: strings(&["a\nserver evil"]), enabled: None });
    assert_eq!(render_init(&EtcdadmConfigSpec { ntp, ..Default::default() }).unwrap_err().field, "spec.ntp.servers[0]");
    let user = User { name: "a".to_owned(), passwd: Some("a:b\nroot:x".to_owned()), ..User::default() };
    let spec = EtcdadmConfigSpec { users: vec![user], ..Default::default() };
    assert_eq!(render_init(&spec).unwrap_err().field, "spec.users[0].passwd");
    let suites = Some("TLS_AES_256_GCM_SHA384".to_owned());
    let spec = EtcdadmConfigSpec { cipher_suites: suites, ..Default::default() };
    assert_eq!(render_init(&spec).unwrap_err().field, "spec.cipherSuites");
    let proxy = Proxy { http_proxy: Some("http://p".to_owned()), https_proxy: None, no_proxy: strings(&["a\"\nb"]) };
    let spec = EtcdadmConfigSpec { proxy: Some(proxy), ..Default::default() };
    assert_eq!(render_init(&spec).unwrap_err().field, "spec.proxy.noProxy[0]");
}

fn invalid_setting(settings: EtcdSettings) -> String {
    render_init(&EtcdadmConfigSpec { etcd: Some(settings), ..Default::default() }).unwrap_err().to_string()
}

fn with_flags(flags: &[(&str, &str)]) -> EtcdSettings {
    EtcdSettings { extra_flags: flags.iter().map(|(name, value)| flag(name, value)).collect(), ..Default::default() }
}

/// A config that is older than the rules of its CRD, or has bypassed them, is refused here.
#[rstest]
#[case(with_flags(&[("metrics", "basic"), ("max-learners", "5")]), "spec.etcd.extraFlags[1]: max-learners: it cannot be set here")]
#[case(with_flags(&[("experimental-max-learners", "5")]), "spec.etcd.extraFlags[0]: experimental-max-learners: ")]
#[case(with_flags(&[("strict-reconfig-check", "false")]), "spec.etcd.extraFlags[0]: strict-reconfig-check: ")]
#[case(with_flags(&[("initial-cluster-state", "new")]), "spec.etcd.extraFlags[0]: initial-cluster-state: ")]
#[case(with_flags(&[("force-new-cluster", "true")]), "spec.etcd.extraFlags[0]: force-new-cluster: ")]
#[case(with_flags(&[("unsafe-no-fsync", "true")]), "spec.etcd.extraFlags[0]: unsafe-no-fsync: ")]
#[case(with_flags(&[("name", "x")]), "spec.etcd.extraFlags[0]: name: ")]
#[case(with_flags(&[("metrics", "basic\nETCD_NAME=x")]), "spec.etcd.extraFlags[0]: metrics: ")]
#[case(EtcdSettings { snapshot_count: Some(200), ..with_flags(&[("snapshot-count", "300")]) }, "spec.etcd.extraFlags[0]: snapshot-count: it is given twice")]
#[case(EtcdSettings { quota_backend_bytes: Some(-1), ..Default::default() }, "spec.etcd.quotaBackendBytes: quota-backend-bytes: ")]
#[case(EtcdSettings { heartbeat_interval_milliseconds: Some(500), ..Default::default() }, "spec.etcd.heartbeatIntervalMilliseconds: ")]
#[case(EtcdSettings { election_timeout_milliseconds: Some(400), ..Default::default() }, "spec.etcd.electionTimeoutMilliseconds: ")]
fn settings_that_etcd_or_the_cluster_would_not_survive_are_refused(
    #[case] settings: EtcdSettings,
    #[case] message: &str,
) {
    let refusal = invalid_setting(settings);
    assert!(refusal.starts_with(message), "{refusal}");
}

#[test]
fn a_learner_limit_above_one_reaches_the_machine() {
    let with = |limit: Option<&str>, version: &str| {
        let spec = EtcdadmConfigSpec { version: Some(version.to_owned()), ..Default::default() };
        render_with(&join(), &spec, &SecretValues::default(), limit)
    };
    for limit in [None, Some("1")] {
        assert!(!with(limit, "3.5.21").unwrap().contains("max-learners"), "{limit:?}");
    }
    assert!(with(Some("3"), "3.6.16").unwrap().contains(" --max-learners 3 "));
    let error = with(Some("3"), "3.5.32").unwrap_err().to_string();
    assert!(error.contains("etcd 3.5.32 allows one learner at a time"), "{error}");
    for bad in ["", "0", "-1", "three", "3.5"] {
        let error = with(Some(bad), "3.6.16").unwrap_err();
        assert_eq!(error.field, "metadata.annotations[etcdcluster.cluster.x-k8s.io/max-learners]", "{bad}");
    }
}

#[test]
fn data_beyond_the_limit_of_a_secret_is_refused() {
    let content = "x".repeat(900 * 1024);
    let error =
        render_init(&EtcdadmConfigSpec { files: vec![file("/x", &content)], ..Default::default() }).unwrap_err();
    assert!(error.field == "spec.files" && error.problem.contains("1048576"), "{error}");
}

#[test]
fn the_docker_provider_is_spared_what_it_cannot_read() {
    let with = |spec: EtcdadmConfigSpec| render_init(&docker(spec));
    let error = with(EtcdadmConfigSpec { files: vec![file("/etc/$(id)", "")], ..Default::default() }).unwrap_err();
    assert_eq!(error.field, "spec.files[0].path");
    let gzip =
        File { content_from: Some(source("s", "k")), content: None, encoding: Some(Encoding::Gzip), ..file("/x", "") };
    let mut secrets = SecretValues::default();
    secrets.insert(&source("s", "k").secret, vec![0x1f, 0x8b]);
    let spec = docker(EtcdadmConfigSpec { files: vec![gzip], ..Default::default() });
    assert_eq!(render_as(&first(), &spec, &secrets).unwrap_err().field, "spec.files[0].encoding");
    let long = "x".repeat(70_000);
    let error = with(EtcdadmConfigSpec { post_etcdadm_commands: vec![long], ..Default::default() }).unwrap_err();
    assert_eq!(error.field, "spec.postEtcdadmCommands[0]");
    // A long file does not make a long line.
    let content = "x".repeat(200_000);
    let text = with(EtcdadmConfigSpec { files: vec![file("/x", &content)], ..Default::default() }).unwrap();
    assert!(text.lines().all(|line| line.len() < 64 * 1024));
}

/// Text with everything that has a meaning in YAML, Jinja or a shell.
fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        "[^\0]{0,40}",
        "[ \t\n'\"\\\\$`{}%#:&*!|>@,\\[\\]?~-]{0,24}",
        Just("x\nruncmd:\n- evil".to_owned()),
        Just("{{ ds.x }}{% raw %}\"]}".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_text_arrives_in_its_place(
        commands in prop::collection::vec(nasty(), 0..4), content in any::<String>(), gecos in nasty(), extra in nasty(),
        for_docker in any::<bool>(),
    ) {
        let mut spec = EtcdadmConfigSpec {
            pre_etcdadm_commands: commands.clone(),
            post_etcdadm_commands: commands.clone(),
            files: vec![file("/etc/x", &content)],
            etcdadm_args: [("data-dir".to_owned(), extra.clone())].into_iter().collect(),
            ..EtcdadmConfigSpec::default()
        };
        if for_docker {
            spec = docker(spec);
        } else {
            spec.users = vec![User { name: "u".to_owned(), gecos: Some(gecos.clone()), ..User::default() }];
        }
        let text = render_init(&spec).unwrap();
        prop_assert_eq!(&text, &render_init(&spec).unwrap());
        let document = Document::read(&text);
        prop_assert!(document.ntp.is_empty());
        prop_assert_eq!(document.content("/etc/x"), content.as_bytes());
        let (index, path, key) = if for_docker {
            (0, "/run/cluster-api/etcd-ca.pem", format!("{CERT}{KEY}"))
        } else {
            (1, "/etc/etcd/pki/ca.key", KEY.to_owned())
        };
        prop_assert_eq!(document.content(path), key.as_bytes());
        prop_assert_eq!(&document.write_files[index].permissions, "0600");
        prop_assert_eq!(&document.write_files[index].owner, "root:root");

        // One item of ours, then the user's, etcdadm's, and the user's again.
        let count = commands.len();
        prop_assert_eq!(document.runcmd.len(), 2 * count + 2);
        let expected = |command: &String| {
            // Quotes inside instance data may change their kind, nothing else.
            let guarded = format!("{{ :\n{command}\n}}");
            if for_docker { format!("set -e\n{guarded}\n:") } else { guarded }
        };
        let quotes = |text: &str| text.replace('"', "'");
        for (index, command) in commands.iter().enumerate() {
            prop_assert_eq!(quotes(&document.runcmd[1 + index]), quotes(&expected(command)));
            prop_assert_eq!(quotes(&document.runcmd[2 + count + index]), quotes(&expected(command)));
        }
        let word = super::shell::word(&format!("--data-dir={extra}"));
        prop_assert!(document.runcmd[1 + count].contains(&word));
        if for_docker {
            let top: Vec<&str> = text.lines().filter(|line| line.starts_with(|c: char| c.is_alphabetic() || c == ':')).collect();
            prop_assert_eq!(top, ["write_files:", "runcmd:"]);
        } else {
            prop_assert_eq!(document.users[0]["gecos"].as_str(), Some(gecos.as_str()));
            // Only instance data in commands is a template.
            for (at, _) in text.match_indices("{{") {
                let tag = text[at + 2..].trim_start();
                prop_assert!(tag.starts_with("ds") || tag.starts_with("v1"), "{}", tag);
            }
            let has_block = ["{%", "{#"].iter().any(|tag| text.contains(tag));
            prop_assert!(!has_block);
        }
    }
}
