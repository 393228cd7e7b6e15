//! Two pairs of members: a voter and a learner each. The learner stays a learner.

use super::grpc;
use anyhow::{Context, Result, bail};
use e2e::process::{Command, Process};
use e2e::simulated::{Fleet, SUBNET};
use e2e::tls::{Authority, Identity};
use e2e::until::until;
use e2e::world::World;
use etcd_client::MemberAddOptions;
use etcdadm_bootstrap::build::{Bootstrap, CertificateAuthority, Role, SecretValues, render};
use k8s_openapi::jiff::Timestamp;
use local_infrastructure::address::IpFamily;
use local_infrastructure::hardware::{Hardware, NewMachine};
use local_infrastructure::observation::UserData;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Addresses of the real members, far from those of machines.
const REAL: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 250, 1), Ipv4Addr::new(10, 78, 250, 2)];
/// How long a member may take to answer.
const UP: Duration = Duration::from_secs(30);
/// A time that is longer than the test.
const NEVER: Duration = Duration::from_secs(3600);

/// The addresses of a pair.
pub(super) struct Pair {
    pub(super) voter: Ipv4Addr,
    pub(super) learner: Ipv4Addr,
}

/// A pair of real etcd processes.
pub(super) async fn real(world: &World, authority: &Authority) -> Result<(Pair, [Process; 2])> {
    let identity = authority.client("test")?;
    let names = ["real-0", "real-1"];
    let all = |count: usize| {
        let entries = names.iter().zip(REAL).take(count);
        entries.map(|(name, address)| format!("{name}=https://{address}:2380")).collect::<Vec<_>>().join(",")
    };
    let first = etcd(world, authority, names[0], REAL[0]).await?;
    let first = first.args(["--initial-cluster", &all(1), "--initial-cluster-state", "new"]).spawn()?;
    let mut client = until("etcd answers", UP, async || {
        let mut client = grpc::client(REAL[0], authority, &identity).await?;
        client.status().await?;
        Ok(Some(client))
    })
    .await?;
    let peer = format!("https://{}:2380", REAL[1]);
    client.member_add([peer], Some(MemberAddOptions::new().with_is_learner())).await.context("add a learner")?;
    let second = etcd(world, authority, names[1], REAL[1]).await?;
    let second = second.args(["--initial-cluster", &all(2), "--initial-cluster-state", "existing"]).spawn()?;
    until("the learner answers", UP, async || {
        let named = client.member_list().await?.members().iter().all(|member| !member.name().is_empty());
        let status = grpc::client(REAL[1], authority, &identity).await?.status().await?;
        // It takes some seconds until the storage version follows the cluster version.
        let settled = status.leader() != 0 && status.0.storage_version == "3.6.0";
        Ok((named && settled).then_some(()))
    })
    .await?;
    Ok((Pair { voter: REAL[0], learner: REAL[1] }, [first, second]))
}

async fn etcd(world: &World, authority: &Authority, name: &str, address: Ipv4Addr) -> Result<Command> {
    let directory = world.state(name)?;
    let file = |what: &str, text: &str| -> Result<String> {
        let path = directory.join(what);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path.display().to_string())
    };
    let Identity { certificate, key } = authority.member(name, address)?;
    let (ca, certificate, key) =
        (file("ca.crt", &authority.certificate)?, file("tls.crt", &certificate)?, file("tls.key", &key)?);
    let mut command = Command::new(name, &world.tools().etcd, world.logs()).args(["--name", name]);
    command = command.arg("--data-dir").arg(directory.join("data"));
    for side in ["", "peer-"] {
        for (flag, file) in [("cert-file", &certificate), ("key-file", &key), ("trusted-ca-file", &ca)] {
            command = command.arg(format!("--{side}{flag}={file}"));
        }
        command = command.arg(format!("--{side}client-cert-auth"));
    }
    // All members are in one world, and reach each other from any of its addresses.
    command = command.arg("--peer-skip-client-san-verification");
    let (clients, peers) = (format!("https://{address}:2379"), format!("https://{address}:2380"));
    let urls = [
        ("listen-client-urls", &clients),
        ("advertise-client-urls", &clients),
        ("listen-peer-urls", &peers),
        ("initial-advertise-peer-urls", &peers),
    ];
    Ok(urls.iter().fold(command, |command, (flag, url)| command.arg(format!("--{flag}={url}"))))
}

/// A pair of simulated machines that boot with data that the bootstrap provider has rendered.
pub(super) async fn simulated(authority: &Authority, key: &str) -> Result<Pair> {
    let fleet = Fleet::with_learners_for(NEVER, SUBNET.parse()?);
    let voter = boot(&fleet, "demo-etcd-0", &Role::Init { not_after: Timestamp::MAX }, authority, key)?;
    serves(voter).await?;
    let join = Role::Join { client_urls: vec![format!("https://{voter}:2379")], cluster_id: None };
    let learner = boot(&fleet, "demo-etcd-1", &join, authority, key)?;
    serves(learner).await?;
    Ok(Pair { voter, learner })
}

fn boot(fleet: &Fleet, name: &str, role: &Role, authority: &Authority, key: &str) -> Result<Ipv4Addr> {
    let pems = CertificateAuthority::from_pem(authority.certificate.as_bytes(), key.as_bytes());
    let pems = pems.ok().context("a CA that the bootstrap provider takes")?;
    let (spec, secrets) = (Default::default(), SecretValues::default());
    let bootstrap =
        Bootstrap { member: name, role, authority: &pems, spec: &spec, max_learners: None, secrets: &secrets };
    let user_data = UserData(render(&bootstrap)?.value.into_bytes());
    let (namespace, name) = ("default".to_owned(), name.to_owned());
    let new = NewMachine {
        namespace,
        name: name.clone(),
        uid: String::new(),
        host_name: name.clone(),
        ip_family: IpFamily::IPv4,
        user_data,
    };
    fleet.create(new)?;
    match fleet.look("default", &name)?.context("a machine that was made")?.address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => bail!("it has {address}"),
    }
}

async fn serves(address: Ipv4Addr) -> Result<()> {
    let connected = async || Ok(tokio::net::TcpStream::connect((address, 2379)).await.is_ok().then_some(()));
    until(format!("{address} serves"), UP, connected).await
}
