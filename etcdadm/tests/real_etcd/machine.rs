//! Machines side by side on loopback addresses, each below its own directory, with real etcd processes and an init
//! system that treats the unit as systemd would.

#![expect(clippy::disallowed_methods, reason = "the init system has threads of its own, which sleep")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etcdadm::Wanted;
use etcdadm::cli::{self, Command as Subcommand, MemberArgs};
use etcdadm::init_system::{Boxed, InitSystem, UnitState};
use etcdadm::kept::Kept;
use etcdadm::node::Node;
use etcdadm::paths::Paths;
use etcdadm::settings::Settings;

use crate::releases::Release;

/// Machines of one test.
pub struct Network {
    all: tempfile::TempDir,
    release: Release,
    /// The second and the third number of the machines' addresses. They differ from those of other tests.
    prefix: String,
}

impl Network {
    pub fn new(release: &Release) -> Self {
        static TAKEN: AtomicU8 = AtomicU8::new(0);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("127.{}.{}", 64 + number, std::process::id() % 250);
        Self { all: tempfile::tempdir().unwrap(), release: release.clone(), prefix }
    }

    /// A machine whose address ends with `number`.
    pub fn machine(&self, number: u32) -> Machine {
        let root = self.all.path().join(format!("m{number}"));
        fs::create_dir_all(root.join("opt/bin")).unwrap();
        for program in ["etcd", "etcdctl"] {
            symlink(self.release.programs.join(program), root.join("opt/bin").join(program)).unwrap();
        }
        let mut machine = Machine {
            name: format!("m{number}"),
            address: format!("{}.{number}", self.prefix),
            flags: vec!["--version".to_owned(), self.release.version.clone()],
            service: Service { unit: root.join("etc/systemd/system/etcd.service"), state: Arc::default() },
            release: self.release.clone(),
            paths: None,
            root,
        };
        machine.paths = Some(machine.settings().paths(&machine.root));
        machine
    }

    /// The machine with this number, after it has joined through `other`.
    pub async fn member(&self, number: u32, other: &Machine) -> Machine {
        let machine = self.machine(number).with_authority_of(other);
        machine.join(&[other]).await.unwrap();
        machine
    }
}

/// What the init system knows of etcd's service.
#[derive(Default)]
struct State {
    /// Whether the service should run.
    wanted: bool,
    /// Whether a thread supervises it.
    supervised: bool,
    main: Option<u32>,
    /// The exit status of the last main process.
    last_exit: Option<i32>,
    starts: u32,
}

/// Runs etcd.service as systemd does: it runs `ExecStart` with `EnvironmentFile`, runs `ExecStopPost` after every end,
/// and restarts the service unless it was stopped or `RestartPreventExitStatus` forbids it.
#[derive(Clone)]
pub struct Service {
    unit: PathBuf,
    state: Arc<Mutex<State>>,
}

impl Service {
    fn value(&self, key: &str) -> String {
        let unit = fs::read_to_string(&self.unit).unwrap();
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned));
        line.unwrap_or_else(|| panic!("the unit has no {key}"))
    }

    fn command(&self, key: &str) -> Command {
        let line = self.value(key);
        let mut words = line.trim_start_matches('-').split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command
    }

    fn spawn(&self) -> Child {
        let env = fs::read_to_string(self.value("EnvironmentFile")).unwrap();
        let settings = env.lines().filter_map(|line| line.split_once('='));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.unit.with_extension("log")).unwrap();
        self.command("ExecStart").envs(settings).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    fn supervise(&self) {
        while self.state.lock().unwrap().wanted {
            let mut main = self.spawn();
            {
                let mut state = self.state.lock().unwrap();
                state.main = Some(main.id());
                state.starts += 1;
            }
            let status = main.wait().unwrap();
            let mut state = self.state.lock().unwrap();
            state.main = None;
            state.last_exit = status.code();
            drop(state);
            assert!(self.command("ExecStopPost").status().unwrap().success());
            let final_exit = self.value("RestartPreventExitStatus").parse().ok();
            if status.code().is_some() && status.code() == final_exit {
                self.state.lock().unwrap().wanted = false;
            } else {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        self.state.lock().unwrap().supervised = false;
    }

    fn start_now(&self) {
        let mut state = self.state.lock().unwrap();
        state.wanted = true;
        if !std::mem::replace(&mut state.supervised, true) {
            let service = self.clone();
            std::thread::spawn(move || service.supervise());
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let main = self.state.lock().unwrap().main;
        if let Some(pid) = main.and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).unwrap())) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    fn stop_now(&self, signal: rustix::process::Signal) {
        self.state.lock().unwrap().wanted = false;
        let begin = Instant::now();
        while self.state.lock().unwrap().supervised {
            self.signal(signal);
            std::thread::sleep(Duration::from_millis(20));
            assert!(begin.elapsed() < Duration::from_secs(30), "etcd does not end");
        }
    }
}

impl InitSystem for Service {
    fn state(&self) -> Boxed<anyhow::Result<UnitState>> {
        let up = self.state.lock().unwrap().supervised;
        Box::pin(async move { Ok(if up { UnitState::Up } else { UnitState::Down }) })
    }

    fn start(&self) -> Boxed<anyhow::Result<()>> {
        self.start_now();
        Box::pin(async { Ok(()) })
    }

    fn stop(&self) -> Boxed<anyhow::Result<()>> {
        self.stop_now(rustix::process::Signal::TERM);
        Box::pin(async { Ok(()) })
    }

    fn restart(&self) -> Boxed<anyhow::Result<()>> {
        self.stop_now(rustix::process::Signal::TERM);
        self.start_now();
        Box::pin(async { Ok(()) })
    }
}

pub struct Machine {
    pub root: PathBuf,
    /// As in URLs: an IPv6 address has brackets.
    pub address: String,
    name: String,
    /// The flags on the command line beside name and address.
    pub flags: Vec<String>,
    pub service: Service,
    release: Release,
    paths: Option<Paths>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.service.stop_now(rustix::process::Signal::KILL);
    }
}

impl Machine {
    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(ToString::to_string));
        self
    }

    pub fn with_authority_of(self, other: &Self) -> Self {
        fs::create_dir_all(self.root.join("etc/etcd/pki")).unwrap();
        for file in ["etc/etcd/pki/ca.crt", "etc/etcd/pki/ca.key"] {
            fs::copy(other.root.join(file), self.root.join(file)).unwrap();
        }
        self
    }

    /// Gives the machine a new name: from now on it stands for another machine that has got its address.
    pub fn is_called(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// Changes the version that its etcd reports, and that etcdadm is asked for. The machine still runs the same
    /// program.
    pub fn says_it_is(&mut self, version: &str) {
        let real = self.release.programs.join("etcd");
        self.etcd_is(version, &format!("exec {} \"$@\"", real.display()));
        version.clone_into(&mut self.flags[1]);
    }

    /// Makes its etcd report its version and do nothing else.
    pub fn etcd_ends_at_once(&self) {
        self.etcd_is(&self.release.version, "exit 1");
    }

    /// Limits its etcd to TLS 1.2, the last version in which cipher suites can be chosen.
    pub fn speaks_tls_1_2(&self) {
        let real = self.release.programs.join("etcd");
        let otherwise = format!("export ETCD_TLS_MAX_VERSION=TLS1.2\nexec {} \"$@\"", real.display());
        self.etcd_is(&self.release.version, &otherwise);
    }

    fn etcd_is(&self, version: &str, otherwise: &str) {
        let program = self.paths().program("etcd");
        let text = format!("#!/bin/sh\n[ \"$*\" != --version ] || exec echo etcd Version: {version}\n{otherwise}\n");
        // Another process writes it: if this process opened the file, a test that forks meanwhile would keep the file
        // busy.
        let write = ["-c", "printf %s \"$1\" >\"$0.new\" && chmod 755 \"$0.new\" && mv \"$0.new\" \"$0\""];
        assert!(Command::new("/bin/sh").args(write).arg(program).arg(text).status().unwrap().success());
    }

    /// Does `etcdctl member add --learner` for the machine `other`. Returns the learner's ID in hexadecimal.
    pub fn adds_learner(&self, other: &Self) -> String {
        let url = format!("--peer-urls=https://{}:2380", other.address);
        let told = self.asks(&["member", "add", &other.name, "--learner", &url, "-w", "json"]);
        let document: serde_json::Value = serde_json::from_str(&told).unwrap();
        format!("{:x}", document["member"]["ID"].as_u64().unwrap())
    }

    fn settings(&self) -> Settings {
        self.asked_for().unwrap()
    }

    /// The settings of a run of the program, including those that earlier runs have left.
    pub fn asked_for(&self) -> anyhow::Result<Settings> {
        let address = self.address.trim_matches(['[', ']']);
        let own = ["etcdadm", "init", "--bind-address", address, "--name", &self.name, "--timeout", "60s"];
        let line = own.into_iter().chain(self.flags.iter().map(String::as_str)).map(Into::into);
        let Subcommand::Init(init) = cli::parse(line).unwrap().command else { unreachable!() };
        let member: MemberArgs = init.member;
        Settings::new(member, &[], &Kept::load(&self.root)?)
    }

    pub fn paths(&self) -> &Paths {
        self.paths.as_ref().unwrap()
    }

    /// The node that a run of the program starts from.
    pub fn node(&self) -> Node {
        etcdadm::set_up_tls();
        let now = time::OffsetDateTime::now_utc();
        Node::new(&self.root, self.settings(), Box::new(self.service.clone()), now)
    }

    pub async fn init(&self) -> anyhow::Result<()> {
        etcdadm::init(&self.node(), None).await
    }

    /// `init` with a deadline this far from now.
    pub async fn init_until(&self, from_now: time::Duration) -> anyhow::Result<()> {
        etcdadm::init(&self.node(), Some(time::OffsetDateTime::now_utc() + from_now)).await
    }

    pub async fn join(&self, through: &[&Self]) -> anyhow::Result<()> {
        self.join_as(through, None, true).await
    }

    /// `join` with the ID of the cluster, with or without retries.
    pub async fn join_as(&self, through: &[&Self], cluster_id: Option<u64>, retry: bool) -> anyhow::Result<()> {
        let endpoints: Vec<_> = through.iter().map(|m| format!("https://{}", m.address).parse().unwrap()).collect();
        etcdadm::join(&self.node(), &Wanted { endpoints: &endpoints, cluster_id, retry }).await
    }

    /// ID of the cluster that it is a member of.
    pub fn cluster_id(&self) -> u64 {
        let record = fs::read(self.paths().member_record()).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        u64::from_str_radix(record["clusterID"].as_str().unwrap(), 16).unwrap()
    }

    /// As `systemctl start`.
    pub fn start(&self) {
        self.service.start_now();
    }

    /// As `systemctl stop`.
    pub fn stop(&self) {
        self.service.stop_now(rustix::process::Signal::TERM);
    }

    /// Kills etcd with SIGKILL. The service restarts it.
    pub fn kill_etcd(&self) {
        self.service.signal(rustix::process::Signal::KILL);
    }

    /// Loses all that is in the data directory while the machine is off, without any notice to etcd.
    pub fn lose_disk(&self) {
        self.power_off();
        fs::remove_dir_all(self.paths().data_dir()).unwrap();
        fs::create_dir(self.paths().data_dir()).unwrap();
    }

    /// Gets new, empty disks and is installed again from the same user data: it has its programs and the CA.
    pub fn is_reinstalled(&self) {
        self.power_off();
        for directory in ["var", "etc/systemd"] {
            fs::remove_dir_all(self.root.join(directory)).unwrap();
        }
        for entry in fs::read_dir(self.root.join("etc/etcd")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Loses all of `/var`: the disk with the data and with the records of etcdadm.
    pub fn lose_var(&self) {
        self.power_off();
        fs::remove_dir_all(self.root.join("var")).unwrap();
    }

    /// Kills everything without notice. Not even `ExecStopPost` runs.
    pub fn power_off(&self) {
        let stopped = self.paths().guard().with_extension("off");
        fs::rename(self.paths().guard(), &stopped).unwrap();
        fs::write(self.paths().guard(), "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(self.paths().guard(), fs::metadata(&stopped).unwrap().permissions()).unwrap();
        self.service.stop_now(rustix::process::Signal::KILL);
        fs::rename(stopped, self.paths().guard()).unwrap();
    }

    /// Waits until a start is refused, and returns the reported reason.
    pub fn refusal(&self) -> String {
        let begin = Instant::now();
        while self.service.state.lock().unwrap().supervised {
            assert!(begin.elapsed() < Duration::from_secs(20), "etcd was not refused: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let state = self.service.state.lock().unwrap();
        assert_eq!(state.last_exit, Some(78), "{}", self.log());
        fs::read_to_string(self.paths().refusal()).unwrap()
    }

    pub fn starts(&self) -> u32 {
        self.service.state.lock().unwrap().starts
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.service.unit.with_extension("log")).unwrap_or_default()
    }

    pub fn etcdctl(&self, args: &[&str]) -> Output {
        let endpoint = format!("--endpoints=https://{}:2379", self.address);
        Command::new(self.paths().etcdctl_wrapper()).arg(endpoint).args(args).output().unwrap()
    }

    /// Whether etcd accepts a value of 1 MiB.
    pub fn puts_a_megabyte(&self, key: &str) -> bool {
        let value = self.root.join("value");
        fs::write(&value, vec![b'x'; 1024 * 1024]).unwrap();
        let endpoint = format!("--endpoints=https://{}:2379", self.address);
        let mut etcdctl = Command::new(self.paths().etcdctl_wrapper());
        let etcdctl = etcdctl.args([&endpoint, "put", key]).stdin(fs::File::open(value).unwrap());
        etcdctl.output().unwrap().status.success()
    }

    /// The output of etcdctl, which must succeed within some seconds.
    pub fn asks(&self, args: &[&str]) -> String {
        let begin = Instant::now();
        loop {
            let output = self.etcdctl(args);
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The name of every member, sorted. Learners have `(learner)` after the name.
    pub fn members(&self) -> Vec<String> {
        let document: serde_json::Value = serde_json::from_str(&self.asks(&["member", "list", "-w", "json"])).unwrap();
        let mut members: Vec<String> = document["members"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| {
                let learner = if m["isLearner"].as_bool().unwrap_or(false) { " (learner)" } else { "" };
                format!("{}{learner}", m["name"].as_str().unwrap_or_default())
            })
            .collect();
        members.sort();
        members
    }

    /// The member's ID in hexadecimal, from the record.
    pub fn id(&self) -> String {
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(self.paths().member_record()).unwrap()).unwrap();
        record["memberID"].as_str().unwrap().to_owned()
    }

    /// Makes the machine forget the member, as the messages say, so that it can join as a new one.
    pub fn forget(&self) {
        fs::remove_file(self.paths().outer_epoch()).unwrap();
        let _ = fs::remove_file(self.paths().member_record());
        let _ = fs::remove_dir_all(self.paths().data_dir());
    }

    pub fn copy_data(&self, to: &Path) {
        assert!(Command::new("cp").arg("-a").args([self.paths().data_dir(), to]).status().unwrap().success());
    }

    pub fn put_data(&self, from: &Path) {
        fs::remove_dir_all(self.paths().data_dir()).unwrap();
        assert!(Command::new("cp").arg("-a").args([from, self.paths().data_dir()]).status().unwrap().success());
    }

    /// Runs etcd with its settings and without the guard, until it ends by itself.
    pub fn etcd_without_guard(&self) -> Option<i32> {
        let env = fs::read_to_string(self.paths().etcd_env()).unwrap();
        let settings = env.lines().filter_map(|line| line.split_once('='));
        let mut etcd = Command::new(self.paths().program("etcd"));
        let mut etcd = etcd.env_clear().envs(settings).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = etcd.try_wait().unwrap() {
                return status.code();
            }
            if begin.elapsed() > Duration::from_secs(15) {
                etcd.kill().unwrap();
                etcd.wait().unwrap();
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
