//! Bootstrap data with every field, on a machine: the real cloud-init, our etcdadm, a real etcd.

use crate::stage::{SOON, new_authority};
use anyhow::{Context, Result, ensure};
use api::EtcdadmConfigSpec;
use e2e::bed::programs;
use e2e::until::until;
use e2e::world::{ADDRESS, BRIDGE, PREFIX_LENGTH, World};
use etcdadm_bootstrap::build::{Bootstrap, CertificateAuthority, Role, SecretValues, render};
use k8s_openapi::jiff::Timestamp;
use local_infrastructure::address::IpFamily;
use local_infrastructure::image::{Parts, assemble, default_cache};
use local_infrastructure::machine::{Machine, MachineSpec, Machines};
use serde_json::json;
use std::net::Ipv4Addr;

/// The first machine gets new, empty disks while its bootstrap data still says `init`. A day later, that does not start
/// an etcd.
pub(crate) async fn reinstalled(world: World) -> Result<()> {
    make_image(&world)?;
    let (cert, key) = new_authority()?;
    let authority = CertificateAuthority::from_pem(cert.as_bytes(), key.as_bytes())?;
    let boots = async |not_after: Timestamp| {
        let bootstrap = Bootstrap {
            member: "member-0",
            role: &Role::Init { not_after },
            authority: &authority,
            spec: &EtcdadmConfigSpec::default(),
            max_learners: None,
            secrets: &SecretValues::default(),
        };
        let data = render(&bootstrap)?.value;
        let machine = Machines::open(world.state("machines")?).create(machine_spec(&world)?, data.as_bytes())?;
        machine.power_on()?;
        let ended = until("cloud-init has ended", SOON, async || Ok(machine.bootstrap()?)).await?;
        anyhow::Ok((machine, ended))
    };
    let (machine, ended) = boots(Timestamp::MAX).await?;
    ensure!(ended.succeeded, "{:?}\n{}", ended.errors, machine.console()?);
    machine.destroy()?;

    let (machine, ended) = boots("2026-01-01T00:00:00Z".parse()?).await?;
    ensure!(!ended.succeeded, "{}", machine.console()?);
    for said in ["a second, empty one", "delete the Machine"] {
        ensure!(machine.console()?.contains(said), "{}", machine.console()?);
    }
    let made = machine.exec(&[
        "sh",
        "-c",
        "ls -d /var/lib/etcd/member /etc/etcd/etcd.env /etc/systemd/system/etcd.service",
    ])?;
    ensure!(made.stdout.is_empty(), "{}", String::from_utf8_lossy(&made.stdout));
    Ok(machine.destroy()?)
}

fn make_image(world: &World) -> Result<()> {
    let parts = Parts {
        etcdadm: Some(programs()?.join("etcdadm")),
        etcd_releases: Some(world.tools().releases.join("etcd")),
        cache: default_cache(),
    };
    assemble(&world.state("image")?, &parts).context("make the machines' image")
}

pub(crate) async fn every_field(world: World) -> Result<()> {
    make_image(&world)?;
    let (cert, key) = new_authority()?;
    let authority = CertificateAuthority::from_pem(cert.as_bytes(), key.as_bytes())?;
    let spec = spec()?;
    let bootstrap = Bootstrap {
        member: "member-0",
        role: &Role::Init { not_after: Timestamp::MAX },
        authority: &authority,
        spec: &spec,
        max_learners: Some("3"),
        secrets: &SecretValues::default(),
    };
    let data = render(&bootstrap)?.value;

    let machines = Machines::open(world.state("machines")?);
    let machine = machines.create(machine_spec(&world)?, data.as_bytes())?;
    machine.power_on()?;
    let ended = until("cloud-init has ended", SOON, async || Ok(machine.bootstrap()?)).await?;
    ensure!(ended.succeeded, "{:?}\n{}", ended.errors, machine.console()?);
    println!("booted in {} ms", ended.milliseconds);

    let said = |command: &[&str]| said(&machine, command);
    ensure!(said(&["stat", "-c", "%a %U:%G", "/etc/etcd/pki/ca.key"])? == "600 root:root\n");
    ensure!(said(&["cat", "/etc/etcd/pki/ca.crt"])? == cert);
    ensure!(said(&["stat", "-c", "%a %U:%G", "/opt/note"])? == "600 keeper:keeper\n");
    ensure!(said(&["cat", "/opt/note"])? == "{{ ds.meta_data.local_hostname }} $HOME `id` 'x'\n");
    ensure!(said(&["cat", "/etc/issue"])?.ends_with("one more line\n"));
    ensure!(said(&["cat", "/root/before"])? == "member-0-host {{ .State }} {% raw %}\n");
    ensure!(said(&["cat", "/root/after"])? == "success\n/tmp a'b\n", "{}", said(&["cat", "/root/after"])?);
    ensure!(said(&["id", "-nG", "keeper"])?.split_whitespace().any(|group| group == "adm"));
    ensure!(said(&["getent", "passwd", "keeper"])?.contains(":{{ ds.x }} {# one #}:/srv/keeper:/bin/sh"));
    ensure!(said(&["cut", "-d:", "-f1,8", "/etc/shadow"])?.lines().any(|line| line == "former:1"));
    ensure!(said(&["ls", "/srv/etcd"])?.contains("member"));
    ensure!(said(&["sh", "-c", "/opt/etcd/etcdctl.sh endpoint health 2>&1"])?.contains("is healthy"));
    let quota = r"curl --silent http://127.0.0.1:2381/metrics | grep ^etcd_server_quota_backend_bytes";
    let quota = said(&["sh", "-c", quota])?;
    ensure!(quota.trim().ends_with(" 4.294967296e+09"), "{quota}");
    let arguments = said(&["sh", "-c", "tr '\\0' '\\n' < /proc/$(pidof etcd)/environ"])?;
    ensure!(arguments.lines().any(|line| line == "ETCD_MAX_REQUEST_BYTES=3145728"), "{arguments}");
    machine.destroy()?;
    Ok(())
}

fn spec() -> Result<EtcdadmConfigSpec> {
    Ok(serde_json::from_value(json!({
        "users": [
            {
                "name": "keeper", "gecos": "{{ ds.x }} {# one #}", "groups": "adm", "homeDir": "/srv/keeper",
                "shell": "/bin/sh", "passwd": "$6$salt$hash", "lockPassword": false, "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "sshAuthorizedKeys": ["ssh-ed25519 AAAA keeper"],
            },
            {"name": "former", "inactive": true},
        ],
        "ntp": {"enabled": false, "servers": ["ntp.invalid"]},
        "files": [
            {
                "path": "/opt/note", "owner": "keeper:keeper", "permissions": "0600",
                "content": "{{ ds.meta_data.local_hostname }} $HOME `id` 'x'\n",
            },
            {"path": "/etc/issue", "append": true, "content": "one more line\n"},
        ],
        // No traffic may go through the proxy: etcd's release is in the image.
        "proxy": {"httpProxy": "http://proxy.invalid:3128", "httpsProxy": "http://proxy.invalid:3128"},
        "registryMirror": {"endpoint": "mirror.invalid:5000/v2/all"},
        "preEtcdadmCommands": [
            "echo \"{{ ds.meta_data.local_hostname }}\" '{{ .State }} {% raw %}' > /root/before",
            "cd /tmp; WORD=\"a'b\"",
        ],
        "postEtcdadmCommands": [
            "cat /run/cluster-api/bootstrap-success.complete > /root/after\necho \"$PWD $WORD\" >> /root/after",
        ],
        "cloudInitConfig": {"installDir": "/opt/etcd/"},
        "cipherSuites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "version": "v3.6.16",
        "etcd": {
            "quotaBackendBytes": 4_294_967_296_i64, "listenMetricsURLs": ["http://127.0.0.1:2381"],
            "extraFlags": [{"name": "max-request-bytes", "value": "3145728"}],
        },
        "etcdadmArgs": {"data-dir": "/srv/etcd", "server-cert-extra-sans": "etcd.example"},
    }))?)
}

fn machine_spec(world: &World) -> Result<MachineSpec> {
    let gateway: Ipv4Addr = ADDRESS.parse()?;
    let [a, b, c, _] = gateway.octets();
    Ok(MachineSpec {
        namespace: "default".to_owned(),
        name: "member-0".to_owned(),
        uid: "uid-of-member-0".to_owned(),
        host_name: "member-0-host".to_owned(),
        address: Ipv4Addr::new(a, b, c, 77),
        ip_family: IpFamily::IPv4,
        prefix_length: PREFIX_LENGTH,
        gateway,
        bridge: BRIDGE.to_owned(),
        image_dir: world.state("image")?,
        program: programs()?.join("local-infrastructure"),
    })
}

fn said(machine: &Machine, command: &[&str]) -> Result<String> {
    let out = machine.exec(command)?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(out.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
    Ok(text)
}
