//! `init` and `join` on a machine that is a directory, with an init system that only records its orders.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use super::*;
use crate::config::env::Start;
use crate::guard::Data;
use crate::guard::tests::write_program;
use crate::init_system::Boxed;
use crate::pki::authority::AUTHORITY;
use crate::settings::tests::example;
use crate::wal::{self, Owner};

pub(crate) const OWNER: Owner = Owner { cluster_id: 0xc1, member_id: 0x33 };

/// etcd's service: whether it is up, and the orders that it received.
#[derive(Clone, Debug)]
pub(crate) struct Told(Arc<Mutex<(UnitState, Vec<&'static str>)>>);

impl Told {
    pub(crate) fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().1.clone()
    }

    fn tell(&self, what: &'static str, state: UnitState) -> Boxed<Result<()>> {
        let mut told = self.0.lock().unwrap();
        told.0 = state;
        told.1.push(what);
        Box::pin(async { Ok(()) })
    }
}

impl InitSystem for Told {
    fn state(&self) -> Boxed<Result<UnitState>> {
        let state = self.0.lock().unwrap().0;
        Box::pin(async move { Ok(state) })
    }

    fn start(&self) -> Boxed<Result<()>> {
        self.tell("start", UnitState::Up)
    }

    fn stop(&self) -> Boxed<Result<()>> {
        self.tell("stop", UnitState::Down)
    }

    fn restart(&self) -> Boxed<Result<()>> {
        self.tell("restart", UnitState::Up)
    }
}

pub(crate) struct Machine {
    _root: tempfile::TempDir,
    pub(crate) node: Node,
    pub(crate) told: Told,
}

/// A machine at `address`, with an authority and a program that says that it is etcd.
pub(crate) fn machine(address: &str, unit: UnitState) -> Machine {
    let root = tempfile::tempdir().unwrap();
    let told = Told(Arc::new(Mutex::new((unit, Vec::new()))));
    let mut settings = example();
    settings.address = address.parse().unwrap();
    settings.timeout = Duration::from_secs(5);
    let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let node = Node::new(root.path(), settings, Box::new(told.clone()), now);
    let program = format!("#!/bin/sh\necho etcd Version: {}\n", node.settings.version);
    write_program(&node.paths.program("etcd"), &program);
    node.new_authority().unwrap();
    Machine { _root: root, node, told }
}

impl Machine {
    /// The same machine after it has run as a member, with its certificates issued.
    async fn that_is_a_member(self) -> Self {
        let paths = &self.node.paths;
        self.node.certificates(&self.node.authority().unwrap().unwrap(), &self.node.local().await.unwrap()).unwrap();
        config::write_all(paths, &self.node.settings, &Start::Again).unwrap();
        let log = paths.wal_dir().join("0000000000000000-0000000000000000.wal");
        files::write(&log, &wal::tests::segment(OWNER), 0o600).unwrap();
        self.record(OWNER);
        self
    }

    pub(crate) fn record(&self, owner: Owner) {
        let Owner { cluster_id, member_id } = owner;
        let (name, peer_url) = (self.node.settings.name.clone(), self.node.settings.peer_endpoint().to_string());
        MemberRecord::of(cluster_id, member_id, name, peer_url).store(&self.node.paths).unwrap();
    }

    pub(crate) fn data(&self) -> Data {
        guard::data(&self.node.paths).unwrap()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.told.0.lock().unwrap().0 == UnitState::Up
    }

    fn moved_to(mut self, address: &str) -> Self {
        self.node.settings.address = address.parse::<IpAddr>().unwrap();
        self
    }

    /// The files that etcd reads at its next start or handshake.
    fn files_of_etcd(&self) -> Vec<Vec<u8>> {
        let paths = &self.node.paths;
        let files = [paths.certificate(pki::PEER), paths.certificate(pki::SERVER), paths.etcd_env()];
        files.map(|path| std::fs::read(path).unwrap()).into()
    }
}

/// etcd reads its certificates at every handshake: a certificate without the member's address isolates it from the
/// others.
#[tokio::test]
async fn a_run_under_another_address_changes_nothing_of_a_member() {
    for unit in [UnitState::Up, UnitState::Down] {
        let machine = machine("127.0.77.1", unit).that_is_a_member().await.moved_to("127.0.77.2");
        let before = machine.files_of_etcd();
        let endpoints = ["https://127.0.77.9:2379".parse().unwrap()];
        let wanted = crate::Wanted { endpoints: &endpoints, cluster_id: None, retry: false };
        for result in [crate::init(&machine.node, None).await, crate::join(&machine.node, &wanted).await] {
            let message = format!("{:#}", result.unwrap_err());
            assert!(machine.files_of_etcd() == before, "{unit:?}: a file was changed: {message}");
            assert!(message.contains("https://127.0.77.1:2380") && message.contains("--bind-address"), "{message}");
            assert_eq!(machine.told.all(), [""; 0]);
        }
    }
}

/// No other member and no client trusts a new authority.
#[tokio::test]
async fn a_member_gets_no_other_authority() {
    for unit in [UnitState::Up, UnitState::Down] {
        let machine = machine("127.0.77.11", unit).that_is_a_member().await;
        let before = machine.files_of_etcd();
        for file in [machine.node.paths.certificate(AUTHORITY), machine.node.paths.key(AUTHORITY)] {
            std::fs::remove_file(file).unwrap();
        }
        let message = format!("{:#}", crate::init(&machine.node, None).await.unwrap_err());
        assert!(message.contains("is a member") && message.contains("--certs-dir"), "{message}");
        assert!(machine.files_of_etcd() == before && machine.node.authority().unwrap().is_none(), "{unit:?}");
    }
}

/// An init system that carries out a start only after it was ordered to stop, and that cancels the first stop, as
/// systemd does.
struct Slow(Told);

impl InitSystem for Slow {
    fn state(&self) -> Boxed<Result<UnitState>> {
        self.0.state()
    }

    fn start(&self) -> Boxed<Result<()>> {
        drop(self.0.start());
        let told = self.0.clone();
        Box::pin(async move {
            while told.all().len() < 3 {
                tokio::time::sleep(POLL).await;
            }
            Err(anyhow::anyhow!("it was stopped"))
        })
    }

    fn stop(&self) -> Boxed<Result<()>> {
        let stopped = self.0.stop();
        let is_canceled = self.0.all().len() == 2;
        Box::pin(async move {
            anyhow::ensure!(!is_canceled, "Job for etcd.service canceled.");
            stopped.await
        })
    }

    fn restart(&self) -> Boxed<Result<()>> {
        self.0.restart()
    }
}

/// Otherwise etcd would start after the stop, and take the ports that the next start needs; or this run would end, and
/// bootstrap commands run only once.
#[tokio::test]
async fn a_start_that_was_ordered_and_has_not_come_is_stopped_too() {
    let mut machine = machine("127.0.77.15", UnitState::Down);
    machine.node.init_system = Box::new(Slow(machine.told.clone()));
    machine.node.start(&Start::Again).unwrap();
    machine.node.stop().await.unwrap();
    assert_eq!(machine.told.all(), ["start", "stop", "stop", "stop"]);
    machine.node.stop().await.unwrap();
    assert_eq!(machine.told.all().len(), 5, "nothing is ordered any more");
}

#[tokio::test]
async fn a_restart_is_one_order_and_replaces_a_start_that_has_not_come() {
    let mut machine = machine("127.0.77.16", UnitState::Down);
    machine.node.init_system = Box::new(Slow(machine.told.clone()));
    machine.node.start(&Start::Again).unwrap();
    tokio::task::yield_now().await;
    machine.node.restart();
    tokio::time::sleep(POLL * 3).await;
    assert_eq!(machine.node.local().await.unwrap().unit, UnitState::Up);
    assert_eq!(machine.told.all(), ["start", "restart"]);
    assert_eq!(machine.node.service.borrow().failed_starts, 0, "the start that has not come is not waited for");
}

/// The init system starts etcd again by itself, at any moment. If a run took etcd's ports for taken by a stranger then,
/// it would end, and bootstrap commands run only once.
#[tokio::test]
async fn an_etcd_that_was_started_meanwhile_is_no_stranger_on_its_ports() {
    let machine = machine("127.0.77.17", UnitState::Down);
    let local = machine.node.local().await.unwrap();
    let _taken = std::net::TcpListener::bind("127.0.77.17:2379").unwrap();
    let refused = format!("{:#}", machine.node.ensure_started(&local, &Start::Again).await.unwrap_err());
    assert!(refused.contains("port 2379 of 127.0.77.17, which is not free"), "{refused}");
    machine.told.0.lock().unwrap().0 = UnitState::Up;
    machine.node.ensure_started(&local, &Start::Again).await.unwrap();
    assert_eq!(machine.node.local().await.unwrap().unit, UnitState::Up, "the next step knows it");
    assert_eq!(machine.told.all(), [""; 0], "nothing was ordered");
}
