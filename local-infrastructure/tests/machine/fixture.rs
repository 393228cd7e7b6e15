//! Helpers for the tests.

use libtest_mimic::Failed;
pub(crate) use local_infrastructure::machine::Machine;
use local_infrastructure::{
    address::{IpFamily, Subnet},
    image::{self, Parts},
    machine::{MachineSpec, Machines},
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant},
};

const STATE: &str = "/run/local-infrastructure";

/// The output of `local-infrastructure machine`.
pub(crate) fn cli(arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(env!("CARGO_BIN_EXE_local-infrastructure"))
        .args(["machine", "--state-dir", STATE])
        .args(arguments)
        .output()?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(String::from_utf8(output.stderr)?.into())
}

/// The machines of this world.
pub(crate) struct Network {
    pub(crate) machines: Machines,
    subnet: Subnet,
    image_dir: PathBuf,
}

impl Network {
    /// The network of this process.
    pub(crate) fn get() -> &'static Self {
        static NETWORK: OnceLock<Network> = OnceLock::new();
        NETWORK.get_or_init(|| {
            let image_dir = PathBuf::from("/run/image");
            let parts = Parts { etcdadm: None, etcd_releases: None, cache: image::default_cache() };
            image::assemble(&image_dir, &parts).expect("an image");
            let subnet = "10.77.0.0/16".parse().expect("a subnet");
            Self { machines: Machines::open(STATE), subnet, image_dir }
        })
    }

    /// A machine that has been started.
    pub(crate) fn machine(&self, name: &str, data: &Data) -> Result<Machine, Failed> {
        let machine = self.machines.create(self.spec(name)?, data.text().as_bytes())?;
        machine.power_on()?;
        Ok(machine)
    }

    /// A spec for a machine.
    pub(crate) fn spec(&self, name: &str) -> Result<MachineSpec, Failed> {
        Ok(MachineSpec {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            host_name: format!("{name}-host"),
            address: self.machines.reservations().reserve(&self.subnet, &format!("machine/default/{name}"))?,
            ip_family: IpFamily::IPv4,
            prefix_length: self.subnet.prefix_length(),
            gateway: self.subnet.gateway(),
            bridge: "cape0".to_owned(),
            image_dir: self.image_dir.clone(),
            program: PathBuf::from(env!("CARGO_BIN_EXE_local-infrastructure")),
        })
    }
}

/// Bootstrap data.
pub(crate) struct Data {
    files: String,
    sections: String,
    commands: Vec<String>,
    sentinel: bool,
}

impl Data {
    pub(crate) fn new() -> Self {
        Self { sentinel: true, ..Self::without_sentinel() }
    }

    pub(crate) fn without_sentinel() -> Self {
        Self { files: String::new(), sections: String::new(), commands: Vec::new(), sentinel: false }
    }

    pub(crate) fn file(mut self, path: &str, content: &str) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        self.files += &format!("- {{path: {}, content: {}}}\n", quoted(path), quoted(content));
        self
    }

    pub(crate) fn section(mut self, yaml: &str) -> Self {
        self.sections += &format!("{yaml}\n");
        self
    }

    pub(crate) fn run(mut self, command: &str) -> Self {
        self.commands.push(command.to_owned());
        self
    }

    /// An enabled service that answers on port 8080.
    pub(crate) fn server(self) -> Self {
        let unit = "[Service]\nExecStart=/usr/bin/python3 -m http.server 8080\nRestart=always\n\
                    [Install]\nWantedBy=multi-user.target\n";
        self.file("/etc/systemd/system/server.service", unit)
            .run("systemctl daemon-reload && systemctl enable --now server")
    }

    pub(crate) fn text(&self) -> String {
        let mut commands = self.commands.clone();
        if self.sentinel {
            let sentinel = "/run/cluster-api/bootstrap-success.complete";
            commands.push(format!("mkdir -p /run/cluster-api && echo success > {sentinel}"));
        }
        let commands: String =
            commands.iter().map(|command| format!("- {}\n", serde_json::Value::from(command.as_str()))).collect();
        let files = if self.files.is_empty() { String::new() } else { format!("write_files:\n{}", self.files) };
        format!("## template: jinja\n#cloud-config\n{files}{}runcmd:\n{commands}", self.sections)
    }
}

/// Checks again and again until the condition holds.
#[expect(clippy::disallowed_methods, reason = "what is looked at has no event")]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> Result<bool, Failed>) -> Result<(), Failed> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done()? {
        if Instant::now() > deadline {
            return Err(format!("waited 30 s in vain until {what}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether its server answers a request from the bridge.
pub(crate) fn answers(machine: &Machine) -> bool {
    let wait = Duration::from_millis(500);
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((machine.address(), 8080)), wait)?;
        stream.set_read_timeout(Some(wait))?;
        stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n")?;
        Ok(stream.read(&mut [0; 16])? > 0)
    };
    ask().unwrap_or(false)
}

/// Whether a line of shell succeeds inside.
pub(crate) fn succeeds(machine: &Machine, line: &str) -> Result<bool, Failed> {
    Ok(machine.exec(&["sh", "-c", line])?.status.success())
}

/// What a line of shell prints inside, without blanks around it.
pub(crate) fn output(machine: &Machine, line: &str) -> Result<String, Failed> {
    Ok(String::from_utf8(machine.exec(&["sh", "-c", line])?.stdout)?.trim().to_owned())
}

/// A file of a machine.
pub(crate) fn read(machine: &Machine, path: &str) -> Result<String, Failed> {
    Ok(String::from_utf8(machine.exec(&["cat", path])?.stdout)?)
}
