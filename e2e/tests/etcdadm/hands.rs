//! What the stories use: machines with our etcdadm, and the commands that a person types on them.

use anyhow::{Context, Result, ensure};
use e2e::bed::data::{Host, said, serves};
use e2e::bed::{Membership, machine_image, programs};
use e2e::plane::workload::EtcdAccess;
use e2e::tools::Etcd;
use e2e::until::until;
use e2e::world::{ADDRESS, BRIDGE, PREFIX_LENGTH, World};
use local_infrastructure::address::IpFamily;
use local_infrastructure::machine::{Machine, MachineSpec, Machines};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

/// How long a machine may take to boot on a busy computer.
const BOOTS: Duration = Duration::from_secs(60);
/// How long etcd may refuse to remove a member.
const REMOVED: Duration = Duration::from_secs(20);
/// The boot does nothing: everything is typed.
const USER_DATA: &str = "## template: jinja\n#cloud-config\nruncmd:\n- mkdir -p /run/cluster-api\n\
                         - echo success > /run/cluster-api/bootstrap-success.complete\n";
/// The CA's files, in the order in which a person copies them.
const AUTHORITY: [&str; 2] = ["/etc/etcd/pki/ca.crt", "/etc/etcd/pki/ca.key"];

/// The person who types.
pub(crate) struct Person {
    machines: Machines,
    image: PathBuf,
    version: String,
}

impl Person {
    /// A person without any machine yet, who wants this version of etcd.
    pub(crate) fn with(world: &World, etcd: Etcd) -> Result<Self> {
        let machines = Machines::open(world.state("machines")?);
        // An earlier story that failed has left these.
        for machine in machines.list()? {
            machine.destroy()?;
        }
        Ok(Self { machines, image: machine_image(world)?, version: etcd.version()? })
    }

    /// Makes a new machine, and waits until it has booted. A number is used only once.
    pub(crate) async fn machine(&self, number: u8) -> Result<Machine> {
        let gateway: Ipv4Addr = ADDRESS.parse()?;
        let [a, b, c, _] = gateway.octets();
        let name = format!("m{number}");
        let spec = MachineSpec {
            namespace: "default".to_owned(),
            uid: format!("uid-of-{name}"),
            host_name: name.clone(),
            address: Ipv4Addr::new(a, b, c, 100 + number),
            ip_family: IpFamily::IPv4,
            prefix_length: PREFIX_LENGTH,
            gateway,
            bridge: BRIDGE.to_owned(),
            image_dir: self.image.clone(),
            program: programs()?.join("local-infrastructure"),
            name,
        };
        let machine = self.machines.create(spec, USER_DATA.as_bytes())?;
        Host::power_on(&machine).await?;
        let booted = until("the machine has booted", BOOTS, async || Ok(machine.bootstrap()?)).await?;
        ensure!(booted.succeeded, "{:?}\n{}", booted.errors, machine.console()?);
        Ok(machine)
    }

    /// Runs `etcdadm init`, and keeps the command so that it can run again later.
    pub(crate) async fn inits(&self, machine: &Machine) -> Result<()> {
        self.types(machine, &format!("etcdadm init --version {} --timeout 120s", self.version)).await
    }

    /// Copies the CA from a member, and runs `etcdadm join`.
    pub(crate) async fn joins(&self, machine: &Machine, through: &Machine) -> Result<()> {
        for file in AUTHORITY {
            let content = said(through, &["cat", file]).await?;
            let copy = format!("mkdir -p /etc/etcd/pki && umask 077 && cat > {file} <<'END'\n{content}END\n");
            said(machine, &["sh", "-c", &copy]).await?;
        }
        self.types(machine, &self.join([through])).await
    }

    /// Keeps a join through the present members as the command that runs again on a machine: the member that it once
    /// joined through may be gone.
    pub(crate) async fn will_join(&self, machine: &Machine, through: &[Machine]) -> Result<()> {
        said(machine, &["sh", "-c", &keep(&self.join(through))]).await.map(drop)
    }

    fn join<'a>(&self, through: impl IntoIterator<Item = &'a Machine>) -> String {
        let endpoints: Vec<String> =
            through.into_iter().map(|member| format!("https://{}:2379", member.address())).collect();
        format!("etcdadm join {} --version {} --timeout 120s", endpoints.join(","), self.version)
    }

    /// Types a command after storing it where bootstrap data would have it, so that it can run again. Waits until the
    /// member serves.
    async fn types(&self, machine: &Machine, command: &str) -> Result<()> {
        said(machine, &["sh", "-c", &format!("{} && {command}", keep(command))]).await?;
        serves(machine).await
    }

    /// `etcdctl member remove` of the member of `gone`, on another machine.
    pub(crate) async fn removes(&self, gone: &Machine, on: &Machine) -> Result<()> {
        let list = Membership::on(on.clone()).await?;
        let member = list.members.iter().find(|member| member.name == gone.spec().name);
        let id = &member.with_context(|| format!("{} is not in {list:?}", gone.spec().name))?.id;
        // etcd refuses until all voters have been connected for five seconds, and the last one may just have joined.
        let remove = async || said(on, &["/opt/bin/etcdctl.sh", "member", "remove", id]).await.map(|_| Some(()));
        until(format!("{} is removed", gone.spec().name), REMOVED, remove).await
    }
}

/// What an API server would get of a cluster: its members' endpoints, and the certificates of one member.
pub(crate) async fn access(members: &[Machine]) -> Result<EtcdAccess> {
    let first = members.first().context("no member")?;
    let file = async |name: &str| said(first, &["cat", &format!("/etc/etcd/pki/{name}")]).await;
    Ok(EtcdAccess {
        endpoints: members.iter().map(|member| format!("https://{}:2379", member.address())).collect(),
        ca: file("ca.crt").await?,
        certificate: file("apiserver-etcd-client.crt").await?,
        key: file("apiserver-etcd-client.key").await?,
    })
}

/// A command that stores `command` where bootstrap data would have it.
fn keep(command: &str) -> String {
    format!("echo '#!/bin/sh\n{command}' > /var/lib/cloud/instance/scripts/runcmd")
}

/// Runs again what was typed on a machine. It may take this many seconds.
pub(crate) async fn types_it_again(machine: &Machine, seconds: u64) -> Result<Output> {
    machine.run(&["timeout", &seconds.to_string(), "sh", "/var/lib/cloud/instance/scripts/runcmd"]).await
}
