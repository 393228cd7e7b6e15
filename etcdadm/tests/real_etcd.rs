//! `init` and `join` with real etcd processes on loopback addresses of this computer, started directly in place of
//! systemd. Needs a folder of release archives: `ETCDADM_TEST_RELEASES=<dir> cargo test -p etcdadm -- --ignored`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcdadm::cli::{self, Command as Subcommand, MemberArgs};
use etcdadm::init_system::{Boxed, InitSystem, UnitState};
use etcdadm::node::Node;
use etcdadm::paths::Paths;
use etcdadm::settings::Settings;

/// Runs etcd with what etcd.env says, until the test ends.
#[derive(Clone)]
struct Directly {
    paths: Paths,
    etcd: Arc<Mutex<Option<Child>>>,
}

impl InitSystem for Directly {
    fn state(&self) -> Boxed<anyhow::Result<UnitState>> {
        let running = self.etcd.lock().unwrap().as_mut().is_some_and(|child| child.try_wait().unwrap().is_none());
        Box::pin(async move { Ok(if running { UnitState::Up } else { UnitState::Down }) })
    }

    fn start(&self) -> Boxed<anyhow::Result<()>> {
        let env = std::fs::read_to_string(self.paths.etcd_env()).unwrap();
        let settings = env.lines().filter_map(|line| line.split_once('='));
        let log = std::fs::File::create(self.paths.etcd_env().with_extension("log")).unwrap();
        let mut command = Command::new(self.paths.program("etcd"));
        command.env_clear().envs(settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        *self.etcd.lock().unwrap() = Some(command.spawn().unwrap());
        Box::pin(async { Ok(()) })
    }
}

struct Machine {
    root: PathBuf,
    address: String,
    service: Directly,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Machine {
    /// A machine below `all`; the last number of its address is `number`.
    fn new(all: &Path, number: u32) -> Self {
        let root = all.join(format!("m{number}"));
        let address = format!("127.77.0.{number}");
        let releases = std::env::var("ETCDADM_TEST_RELEASES").expect("ETCDADM_TEST_RELEASES names no folder");
        let cache = root.join("var/cache/etcdadm");
        std::fs::create_dir_all(&cache).unwrap();
        std::os::unix::fs::symlink(releases, cache.join("etcd")).unwrap();
        let paths = Paths::new(&root, &settings(&address));
        Self { root, address, service: Directly { paths, etcd: Arc::default() } }
    }

    fn with_authority_of(self, other: &Self) -> Self {
        std::fs::create_dir_all(self.root.join("etc/etcd/pki")).unwrap();
        for file in ["etc/etcd/pki/ca.crt", "etc/etcd/pki/ca.key"] {
            std::fs::copy(other.root.join(file), self.root.join(file)).unwrap();
        }
        self
    }

    /// What a run of the program starts from.
    fn node(&self) -> Node {
        etcdadm::set_up_tls();
        let now = time::OffsetDateTime::now_utc();
        Node::new(&self.root, settings(&self.address), Box::new(self.service.clone()), now)
    }

    async fn join(&self, through: &[&Self]) -> anyhow::Result<()> {
        let endpoints: Vec<_> = through.iter().map(|m| format!("https://{}", m.address).parse().unwrap()).collect();
        etcdadm::join(&self.node(), &endpoints, true).await
    }

    fn stop(&self) {
        if let Some(mut child) = self.service.etcd.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// `name peer-url learner` of every member, sorted, by etcdctl.
    fn members(&self) -> Vec<String> {
        let output = Command::new(self.service.paths.etcdctl_wrapper())
            .args([&format!("--endpoints=https://{}:2379", self.address), "member", "list", "-w", "json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut members: Vec<String> = document["members"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| format!("{} {} {}", m["name"], m["peerURLs"][0], m["isLearner"].as_bool().unwrap_or(false)))
            .collect();
        members.sort();
        members
    }
}

fn settings(address: &str) -> Settings {
    let name = format!("m{}", address.rsplit('.').next().unwrap());
    let line = ["etcdadm", "init", "--bind-address", address, "--name", &name, "--timeout", "60s"].map(Into::into);
    let Subcommand::Init(init) = cli::parse(line).unwrap().command else { unreachable!() };
    let member: MemberArgs = init.member;
    Settings::new(member, &[]).unwrap()
}

fn voters(count: u32) -> Vec<String> {
    (1..=count).map(|i| format!("\"m{i}\" \"https://127.77.0.{i}:2380\" false")).collect()
}

#[tokio::test]
#[ignore = "needs ETCDADM_TEST_RELEASES, a folder with v<version>/etcd-v<version>-linux-<arch>.tar.gz"]
async fn members_come_join_are_interrupted_and_come_back() {
    let all = tempfile::tempdir().unwrap();
    let first = Machine::new(all.path(), 1);

    // Given up at more and more points: a dropped future is as good as a killed process.
    for step in 0..8 {
        let _ = tokio::time::timeout(Duration::from_millis(step * 40), etcdadm::init(&first.node())).await;
    }
    etcdadm::init(&first.node()).await.unwrap();
    assert_eq!(first.members(), voters(1));
    let record = std::fs::read(first.service.paths.member_record()).unwrap();
    etcdadm::init(&first.node()).await.unwrap();
    assert_eq!(std::fs::read(first.service.paths.member_record()).unwrap(), record, "a second init changes nothing");

    let second = Machine::new(all.path(), 2).with_authority_of(&first);
    for step in 0..16 {
        let _ = tokio::time::timeout(Duration::from_millis(step * 20), second.join(&[&first])).await;
        assert!(first.members().len() <= 2, "it is added once only: {:?}", first.members());
    }
    second.join(&[&first]).await.unwrap();
    assert_eq!(first.members(), voters(2));

    // Two want to join at once, one of them through a member that is not there.
    let third = Machine::new(all.path(), 3).with_authority_of(&first);
    let fourth = Machine::new(all.path(), 4).with_authority_of(&first);
    let (through_first, through_second) = ([&fourth, &first], [&third, &second]);
    let (a, b) = tokio::join!(third.join(&through_first), fourth.join(&through_second));
    a.unwrap();
    b.unwrap();
    assert_eq!(first.members(), voters(4));

    // A member that was stopped comes back, a voter without its data does not.
    fourth.stop();
    fourth.join(&[&first]).await.unwrap();
    fourth.stop();
    std::fs::remove_dir_all(fourth.service.paths.data_dir()).unwrap();
    let message = fourth.join(&[&first]).await.unwrap_err().to_string();
    assert!(message.contains("must be removed from the cluster"), "{message}");
    let message = etcdadm::init(&fourth.node()).await.unwrap_err().to_string();
    assert!(message.contains("init would start another, empty cluster"), "{message}");
    assert_eq!(first.members(), voters(4), "neither changed the cluster");
}
