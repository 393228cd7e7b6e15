//! The real cloud-init reads bootstrap data: it renders the template, and validates the result by its schema.

use anyhow::{Context, Result, ensure};
use api::EtcdadmConfigSpec;
use etcdadm_bootstrap::build::{Bootstrap, CertificateAuthority, Role, SecretValues, render};
use k8s_openapi::jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// It stays literal everywhere except in commands.
const INSTANCE_DATA: &str = "{{ ds.meta_data }}";
const HOST_NAME: &str = "host-7";
/// Texts that have a special meaning to a template engine, YAML or a shell.
const NASTY: [&str; 9] = [
    INSTANCE_DATA,
    "{{ .State.Running }}",
    "{% raw %} {% if x %}",
    "{# not a comment #}",
    "# a note: 'single' \"double\" \\back",
    "- [x, {y: z}] & * ! | > %",
    "- \"\n- \"second line\"\nruncmd: []",
    "J\u{fc}rgen \u{1f600}\ttab",
    "$HOME `id` $(id)",
];

/// Minimal and full data, for initializing and for joining, in both forms of cloud-config.
pub(crate) fn accepts_the_bootstrap_data() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let init = Role::Init { not_after: Timestamp::MAX };
    let join = Role::Join {
        client_urls: vec!["https://10.0.0.1:2379".to_owned(), "https://[fd00::3]:2379".to_owned()],
        cluster_id: Some(0xc1),
    };
    for (name, role, spec) in [
        ("minimal-init", &init, json!({})),
        ("minimal-join", &join, json!({})),
        ("full-init", &init, full(true)),
        ("full-join", &join, full(true)),
        ("simple-init", &init, simple(json!({}))),
        ("simple-join", &join, simple(full(false))),
    ] {
        let spec: EtcdadmConfigSpec = serde_json::from_value(spec)?;
        let document = as_cloud_init_sees_it(directory.path(), name, role, &spec).with_context(|| name.to_owned())?;
        arrives(&document, &spec, !name.starts_with("simple")).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// The document as cloud-init's template engine renders it, after its schema has been checked.
fn as_cloud_init_sees_it(directory: &Path, name: &str, role: &Role, spec: &EtcdadmConfigSpec) -> Result<Value> {
    let authority = authority()?;
    let secrets = SecretValues::default();
    let bootstrap =
        Bootstrap { member: "demo-etcd-0", role, authority: &authority, spec, max_learners: None, secrets: &secrets };
    let data = directory.join(format!("{name}.txt"));
    let mut rendered = render(&bootstrap)?.value;
    // The docker provider has no template engine, so its data is not a template.
    if rendered.starts_with("## template: jinja\n") {
        std::fs::write(&data, rendered)?;
        let instance = directory.join("instance-data.json");
        std::fs::write(&instance, json!({"ds": {"meta_data": {"local_hostname": HOST_NAME}}, "v1": {}}).to_string())?;
        rendered = cloud_init(&["devel", "render", "--instance-data", text(&instance)?, text(&data)?])?;
    }
    let file = directory.join(format!("{name}.yaml"));
    std::fs::write(&file, &rendered)?;
    let verdict = cloud_init(&["schema", "--config-file", text(&file)?])?;
    ensure!(verdict.contains("Valid cloud-config") || verdict.contains("Valid schema"), "{verdict}");
    serde_yaml::from_str(&rendered).context("it is no YAML")
}

/// Runs cloud-init. It reports some problems only on standard error, with exit code 0.
fn cloud_init(arguments: &[&str]) -> Result<String> {
    let out = Command::new("cloud-init").args(arguments).output().context("run cloud-init")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success() && !said.contains("Error") && !said.contains("WARNING"), "{arguments:?}: {said}");
    Ok(String::from_utf8(out.stdout)?)
}

/// Every text arrives unchanged where it belongs, and instance data is filled in where it may be.
fn arrives(document: &Value, spec: &EtcdadmConfigSpec, templated: bool) -> Result<()> {
    let commands: Vec<&str> =
        document["runcmd"].as_array().context("no runcmd")?.iter().filter_map(Value::as_str).collect();
    ensure!(commands.iter().filter(|command| command.contains("etcdadm ")).count() == 1, "{commands:?}");
    for command in &spec.pre_etcdadm_commands {
        let expected =
            if templated { command.replace("{{ ds.meta_data.local_hostname }}", HOST_NAME) } else { command.clone() };
        ensure!(commands.iter().any(|found| found.contains(&expected)), "{command} is not in {commands:?}");
    }
    for (index, user) in spec.users.iter().enumerate() {
        ensure!(document["users"][index]["gecos"].as_str() == user.gecos.as_deref(), "{}", document["users"]);
    }
    Ok(())
}

fn simple(mut spec: Value) -> Value {
    spec["cloudInitConfig"] = json!({"modules": "WriteFilesAndRunCmd"});
    spec
}

fn full(with_users: bool) -> Value {
    // In a command, the author decides what a path into instance data means.
    let texts = NASTY.iter().filter(|text| **text != INSTANCE_DATA);
    let mut commands: Vec<String> = texts
        .map(|text| {
            format!(
                "cat <<'END'
{text}
END"
            )
        })
        .collect();
    commands.push("hostname {{ ds.meta_data.local_hostname }}".to_owned());
    let files: Vec<Value> =
        NASTY.iter().enumerate().map(|(n, text)| json!({"path": format!("/opt/{n}"), "content": text})).collect();
    let mut spec = json!({
        "etcdadmInstallCommands": ["true"], "preEtcdadmCommands": commands, "postEtcdadmCommands": ["true"],
        "files": files, "format": "cloud-config", "version": "v3.6.16",
        "cipherSuites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
        "proxy": {"httpProxy": "http://u:p%40@proxy.example:3128", "noProxy": [".svc"]},
        "registryMirror": {"endpoint": "mirror.example:5000/v2/all", "caCert": "pem"},
        "cloudInitConfig": {"etcdReleaseURL": "https://mirror.example/etcd?a=1&b=2", "installDir": "/opt/etcd/"},
        "etcdadmArgs": {"data-dir": "/srv/etcd", "log-level": "debug", "server-cert-extra-sans": "etcd.example"},
    });
    if with_users {
        let users: Vec<Value> = NASTY
            .iter()
            .enumerate()
            .filter(|(_, text)| !text.contains('\n'))
            .map(|(n, text)| json!({"name": format!("user-{n}"), "gecos": text, "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "groups": "adm", "shell": "/bin/sh", "passwd": "$6$salt$hash", "lockPassword": false,
                "primaryGroup": "adm", "inactive": true, "homeDir": "/srv/x", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a@b"]}))
            .collect();
        spec["users"] = json!(users);
        spec["ntp"] = json!({"enabled": true, "servers": ["0.pool.example", "fd00::7"]});
    }
    spec
}

fn authority() -> Result<CertificateAuthority> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cert = params.self_signed(&key)?.pem();
    Ok(CertificateAuthority::from_pem(cert.as_bytes(), key.serialize_pem().as_bytes())?)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}
