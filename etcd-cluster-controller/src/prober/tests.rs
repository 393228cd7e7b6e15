//! The prober with members on real sockets.

use super::*;
use crate::etcd_access::fake::{FakeMember, LIST, RANGE, Reply, STATUS, ca, status, voter};
use crate::observation::probe::{Distrust, ListFault, MemberFault, Membership, OurFault, Outcome, RunKind};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};

const UID: &str = "uid";

struct World {
    prober: Prober,
    changes: UnboundedReceiver<ObjectRef<EtcdCluster>>,
    metrics: Metrics,
    wanted: Probes,
}

impl World {
    fn new() -> Self {
        let (sender, changes) = unbounded_channel();
        let metrics = Metrics::default();
        let prober = Prober::new(sender, &metrics);
        let wanted = Probes {
            ca: Some(ca()),
            cluster_id: None,
            targets: Vec::new(),
            interval: Duration::from_millis(50),
            unhealthy_after: Duration::from_secs(60),
            grace: Duration::from_secs(600),
        };
        Self { prober, changes, metrics, wanted }
    }

    fn member(&mut self, script: impl Fn(&str) -> Reply + Send + 'static) -> FakeMember {
        let member = FakeMember::start(self.wanted.ca.as_ref().unwrap(), script);
        self.target(&[&member.url]);
        member
    }

    fn target(&mut self, urls: &[&str]) -> &mut Target {
        let key = TargetKey::Machine(format!("m{}", self.wanted.targets.len()));
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        self.wanted.targets.push(Target { key, urls, member_id: None, eager: false });
        self.wanted.targets.last_mut().unwrap()
    }

    fn set(&self) {
        self.prober.set(ObjectRef::new("demo-etcd").within("default"), UID, self.wanted.clone());
    }

    /// Waits as a reconcile does: reads a snapshot only after a change was reported.
    async fn until(&mut self, what: &str, is: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let told = async {
            loop {
                let snapshot = self.prober.snapshot(UID);
                if is(&snapshot) {
                    return snapshot;
                }
                assert_eq!(self.changes.recv().await.unwrap().name, "demo-etcd");
            }
        };
        let told = timeout(Duration::from_secs(20), told).await;
        told.unwrap_or_else(|_| panic!("never {what}: {:?}", self.prober.snapshot(UID)))
    }
}

fn knows(snapshot: &Snapshot, members: usize) -> bool {
    matches!(&snapshot.membership, Membership::Known { members: known, .. } if known.len() == members)
}

fn is(snapshot: &Snapshot, machine: &str, kind: RunKind) -> bool {
    snapshot.probes.get(&TargetKey::of(machine)).is_some_and(|probe| probe.run.kind == kind)
}

#[tokio::test]
async fn changes_are_told_and_quiet_is_kept() {
    let mut world = World::new();
    let first = world.member(voter(0xc, 1, &[1, 2]));
    let second = world.member(voter(0xc, 2, &[1, 2]));
    world.set();
    let well = |s: &Snapshot| knows(s, 2) && is(s, "m0", RunKind::Healthy) && is(s, "m1", RunKind::Healthy);
    let snapshot = world.until("well", well).await;
    assert_eq!(snapshot.probes[&TargetKey::of("m1")].report().map(|report| report.member_id), Some(2));

    second.is_asked_again(10).await;
    while world.changes.try_recv().is_ok() {}
    world.set();
    second.is_asked_again(20).await;
    assert!(world.changes.try_recv().is_err(), "nothing has changed");

    second.becomes(|_| Reply::Close);
    let failing = |s: &Snapshot| is(s, "m1", RunKind::Failing);
    let snapshot = world.until("failing", failing).await;
    assert!(matches!(snapshot.probes[&TargetKey::of("m1")].member_fault(), Some(MemberFault::Closed(_))));
    first.becomes(voter(0xc, 1, &[1, 2, 3]));
    world.until("listed", |s| knows(s, 3)).await;
    let text = world.metrics.text().unwrap();
    for outcome in ["ok", "theirs"] {
        assert!(text.contains(&format!("etcdadm_provider_etcd_probes_total{{outcome=\"{outcome}\"}}")), "{text}");
    }
    assert!(text.contains("etcdadm_provider_etcd_probe_seconds_count"), "{text}");
}

#[tokio::test]
async fn another_clusters_list_is_never_reported() {
    let mut world = World::new();
    let member = world.member(voter(0xb, 9, &[9]));
    world.wanted.cluster_id = Some(0xc);
    world.set();
    let other = ListFault::OtherCluster { recorded: 0xc, ids: [0xb].into() };
    let unknown = Membership::Unknown(other);
    let snapshot = world.until("unknown", |snapshot| snapshot.membership == unknown).await;
    let fault = MemberFault::OtherCluster { expected: 0xc, answered: 0xb };
    assert_eq!(snapshot.probes[&TargetKey::of("m0")].member_fault(), Some(&fault));
    assert!(is(&snapshot, "m0", RunKind::Failing));
    assert_eq!(world.prober.refresh(UID).await.membership, unknown);
    assert!(!member.asked().contains(&LIST.to_owned()));

    // The list is known as long as no cluster ID is recorded, and forgotten immediately when another one is recorded.
    world.wanted.cluster_id = None;
    world.set();
    world.until("known", |snapshot| knows(snapshot, 1)).await;
    world.wanted.cluster_id = Some(0xc);
    world.set();
    assert_eq!(world.prober.snapshot(UID).membership, Membership::NotAsked);
    world.until("unknown", |snapshot| snapshot.membership == unknown).await;
}

#[tokio::test]
async fn the_expected_member_is_found_where_it_served_last() {
    let mut world = World::new();
    let (stranger, member) = (world.member(voter(0xc, 9, &[1])), world.member(voter(0xc, 1, &[1])));
    world.wanted.targets.clear();
    let (gone, name) = ("https://127.0.0.1:1", "https://no-such-host.invalid:2379");
    for urls in [[&*stranger.url, &*member.url], [gone, &*member.url], [gone, name], [&*stranger.url, name]] {
        world.target(&urls).member_id = Some(1);
    }
    world.set();
    let snapshot = world.until("found", |s| s.probes.len() == 4).await;
    for machine in ["m0", "m1"] {
        let probe = &snapshot.probes[&TargetKey::of(machine)];
        assert_eq!((&probe.url, probe.run.kind), (&member.url, RunKind::Healthy));
    }
    for machine in ["m2", "m3"] {
        let ours = &snapshot.probes[&TargetKey::of(machine)].outcome;
        assert!(matches!(ours, Outcome::OurFault(OurFault::NameResolution(_))), "one could not be asked: {ours:?}");
    }
}

/// A learner is not asked for a linearizable read, so its answer does not show a quorum.
#[tokio::test]
async fn one_voter_or_another_shows_a_quorum() {
    let mut world = World::new();
    let members = [1, 2].map(|id| world.member(voter(0xc, id, &[1, 2])));
    world.set();
    let well = |snapshot: &Snapshot| ["m0", "m1"].iter().all(|name| is(snapshot, name, RunKind::Healthy));
    let since = world.until("well", well).await.voters_answer_since;
    assert!(since.is_some());
    for (member, name, id) in [(&members[0], "m0", 1), (&members[1], "m1", 2)] {
        member.becomes(|_| Reply::Close);
        let failing = world.until("failing", |snapshot| is(snapshot, name, RunKind::Failing)).await;
        member.becomes(voter(0xc, id, &[1, 2]));
        assert_eq!((failing.voters_answer_since, world.until("well", well).await.voters_answer_since), (since, since));
    }
    let mut learner = status(0xc, 1, 2);
    learner["isLearner"] = json!(true);
    members[0].becomes(move |path| match path {
        STATUS => Reply::Json(200, learner.clone()),
        path => voter(0xc, 1, &[1, 2])(path),
    });
    members[1].becomes(|_| Reply::Close);
    let learns = |snapshot: &Snapshot| snapshot.probes[&TargetKey::of("m0")].report().is_some_and(|it| it.learner);
    let alone = world.until("alone", |snapshot| learns(snapshot) && is(snapshot, "m1", RunKind::Failing)).await;
    assert!(is(&alone, "m0", RunKind::Healthy));
    assert_eq!(alone.voters_answer_since, None);
}

/// A member that the leader did not hear then may be back by now. The old answer would make it unhealthy.
#[tokio::test]
async fn the_word_of_a_leader_that_answers_no_longer_is_forgotten() {
    let mut world = World::new();
    let (others, looks) = (voter(0xc, 1, &[1, 2]), AtomicUsize::new(0));
    let leader = world.member(move |path| match path {
        "/metrics" => {
            let bytes = looks.fetch_add(1, Ordering::SeqCst);
            Reply::Text(format!("etcd_network_peer_received_bytes_total{{From=\"2\"}} {bytes}\n").leak())
        }
        path => others(path),
    });
    world.target(&["https://127.0.0.1:1"]).member_id = Some(2);
    world.set();
    world.until("heard", |snapshot| snapshot.heard == Some([2].into())).await;
    leader.becomes(voter(0xc, 1, &[1, 2]));
    world.until("not known", |snapshot| snapshot.heard.is_none()).await;
}

#[tokio::test]
async fn a_ca_that_cannot_sign_blames_nobody() {
    let mut world = World::new();
    world.member(voter(0xc, 1, &[1]));
    world.wanted.ca.as_mut().unwrap().key = "nonsense".to_owned();
    world.set();
    let snapshot = world.until("probed", |snapshot| !snapshot.probes.is_empty()).await;
    assert!(matches!(snapshot.probes[&TargetKey::of("m0")].outcome, Outcome::OurFault(OurFault::ClientCertificate(_))));
    assert_eq!(snapshot.probes[&TargetKey::of("m0")].run.kind, RunKind::Unknown);
    assert_eq!(snapshot.membership, Membership::NotAsked);
}

/// This is what a manager with a wrong clock sees. A member that refuses this controller is at fault only if another
/// member does not refuse it.
#[tokio::test]
async fn members_that_all_refuse_this_controller_are_not_to_blame() {
    let mut world = World::new();
    let (ours, other) = (world.wanted.ca.clone().unwrap(), ca());
    let refusing = [1, 2].map(|id| FakeMember::start_with(&ours, &other, voter(0xc, id, &[1, 2, 3])));
    for member in &refusing {
        world.target(&[&member.url]);
    }
    world.set();
    let refused = |outcome: &Outcome| match outcome {
        Outcome::OurFault(OurFault::Distrust(Distrust::ClientCertificateRefused(_))) => Some("ours"),
        Outcome::MemberFault(MemberFault::Distrust(Distrust::ClientCertificateRefused(_))) => Some("theirs"),
        // The alert can be lost if the connection is reset right after it.
        Outcome::MemberFault(MemberFault::Closed(_)) => None,
        other => panic!("{other:?}"),
    };
    let both = |snapshot: &Snapshot, whose| {
        let probes = ["m0", "m1"].map(|machine| snapshot.probes.get(&TargetKey::of(machine)));
        let found = probes.map(|probe| refused(&probe?.outcome));
        assert!(found.into_iter().flatten().all(|found| found == whose || whose == "theirs"), "{snapshot:?}");
        found == [Some(whose); 2]
    };
    world.until("refused by both", |snapshot| both(snapshot, "ours")).await;
    world.member(voter(0xc, 3, &[1, 2, 3]));
    world.set();
    world.until("refused by those two only", |snapshot| both(snapshot, "theirs")).await;
}

#[tokio::test]
async fn a_refresh_asks_again_and_a_change_of_plan_is_followed_at_once() {
    let mut world = World::new();
    world.wanted.interval = Duration::from_secs(3600);
    let member = world.member(voter(0xc, 1, &[1]));
    world.set();
    let before = world.until("known", |snapshot| knows(snapshot, 1)).await;
    member.becomes(voter(0xc, 1, &[1, 2]));
    let after = world.prober.refresh(UID).await;
    assert!(knows(&after, 2));
    assert!(after.probes[&TargetKey::of("m0")].at > before.probes[&TargetKey::of("m0")].at);
    assert_eq!(world.prober.refresh("another").await, Snapshot::default());

    // A target without an address, which gets one.
    world.target(&[]);
    world.set();
    let key = TargetKey::of("m1");
    world.until("seen", |s| s.probes.get(&key).is_some_and(|probe| probe.outcome == Outcome::NoAddress)).await;
    let second = FakeMember::start(world.wanted.ca.as_ref().unwrap(), voter(0xc, 2, &[1, 2]));
    world.wanted.targets[1].urls.push(second.url.clone());
    world.set();
    world.until("healthy", |snapshot| is(snapshot, "m1", RunKind::Healthy)).await;
    // A target that is removed.
    world.wanted.targets.pop();
    world.set();
    assert!(!world.prober.snapshot(UID).probes.contains_key(&key));
}

#[tokio::test]
async fn a_run_belongs_to_one_member() {
    let mut world = World::new();
    let member = world.member(voter(0xc, 1, &[1]));
    world.wanted.targets[0].member_id = Some(1);
    world.set();
    let first = world.until("healthy", |snapshot| is(snapshot, "m0", RunKind::Healthy)).await;
    member.becomes(voter(0xc, 2, &[2]));
    world.wanted.targets[0].member_id = Some(2);
    world.set();
    let key = TargetKey::of("m0");
    let replaced = |s: &Snapshot| s.probes[&key].report().is_some_and(|r| r.member_id == 2 && r.identity.is_ok());
    let second = world.until("replaced", replaced).await;
    assert!(second.probes[&key].run.since > first.probes[&key].run.last);
}

#[tokio::test]
async fn an_eager_target_is_probed_often_and_its_start_is_seen_soon() {
    let mut world = World::new();
    world.wanted.interval = Duration::from_secs(3600);
    let member = world.member(|_| Reply::Close);
    world.wanted.targets[0].eager = true;
    world.set();
    world.until("failing", |snapshot| is(snapshot, "m0", RunKind::Failing)).await;
    member.becomes(voter(0xc, 1, &[1]));
    let begun = tokio::time::Instant::now();
    world.until("known", |snapshot| knows(snapshot, 1)).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_cluster_that_is_forgotten_is_no_longer_asked() {
    let mut world = World::new();
    let member = world.member(voter(0xc, 1, &[1]));
    world.set();
    world.until("known", |snapshot| knows(snapshot, 1)).await;
    let cluster = Arc::downgrade(&world.prober.get(UID).unwrap());
    world.prober.forget(UID);
    let gone = async {
        while cluster.upgrade().is_some() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), gone).await.expect("neither the prober nor its task holds it");
    let asked = member.asked().len();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(member.asked().len(), asked);
    assert_eq!(world.prober.snapshot(UID), Snapshot::default());

    world.set();
    world.prober.retain(|uid| uid == UID);
    assert!(world.prober.get(UID).is_some());
    world.prober.retain(|_| false);
    assert!(world.prober.get(UID).is_none());
}

#[tokio::test]
async fn members_that_hang_do_not_add_up_and_do_not_delay_a_refresh() {
    let mut world = World::new();
    let (listener, accepted) = (TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), Arc::new(AtomicUsize::new(0)));
    let url = format!("https://{}", listener.local_addr().unwrap());
    let counter = accepted.clone();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            held.push(stream);
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    for _ in 0..300 {
        world.target(&[&url]);
    }
    world.set();
    let hanging = async {
        while accepted.load(Ordering::SeqCst) < IN_ROUNDS {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), hanging).await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(accepted.load(Ordering::SeqCst), IN_ROUNDS);
    // Another cluster, whose member is healthy, can still be asked.
    world.wanted.targets.clear();
    let member = world.member(voter(0xc, 1, &[1]));
    world.prober.set(ObjectRef::new("other"), "other", world.wanted.clone());
    let snapshot = timeout(Duration::from_secs(2), world.prober.refresh("other")).await.unwrap();
    assert!(knows(&snapshot, 1) && !member.asked().is_empty());
}

/// One that has answered hangs, or answers late, which takes seconds. Meanwhile another one fails.
#[tokio::test]
async fn whoever_answers_soon_is_asked_until_all_of_them_are_asked_at_the_same_time() {
    for is_late in [false, true] {
        let mut world = World::new();
        world.wanted.interval = Duration::from_secs(3600);
        let [fails, waits, _stays] = [1, 2, 3].map(|id| world.member(voter(0xc, id, &[1, 2, 3])));
        world.set();
        let well = |s: &Snapshot| ["m0", "m1", "m2"].iter().all(|name| is(s, name, RunKind::Healthy));
        world.until("well", well).await;
        let late = voter(0xc, 2, &[1, 2, 3]);
        waits.becomes(move |path| {
            if !is_late {
                return Reply::Never;
            }
            std::thread::park_timeout(if path == RANGE { Duration::from_secs(2) } else { Duration::ZERO });
            late(path)
        });
        let (after, ()) = tokio::join!(world.prober.ask_again(UID), async {
            sleep(Duration::from_secs(1)).await;
            fails.becomes(|_| Reply::Close);
        });
        assert!(is(&after, "m0", RunKind::Failing), "it has failed while another one was waited for");
        assert!(is(&after, "m1", if is_late { RunKind::Healthy } else { RunKind::Failing }));
        assert!(is(&after, "m2", RunKind::Healthy));
        let at = |snapshot: &Snapshot, machine| snapshot.probes[&TargetKey::of(machine)].at;
        let apart = at(&after, "m2").duration_since(at(&after, "m0")).abs();
        assert!(apart.as_secs() < 1, "they were asked at the same time: {apart:?}");
    }
}

#[tokio::test]
async fn a_member_without_a_leader_is_reachable() {
    let mut world = World::new();
    world.member(|_| Reply::Json(200, status(0xc, 1, 0)));
    world.wanted.cluster_id = Some(0xc);
    world.set();
    let no_quorum = Membership::Unknown(ListFault::NoQuorum(Some(MemberFault::NoLeader)));
    let snapshot = world.until("without a quorum", |snapshot| snapshot.membership == no_quorum).await;
    assert!(is(&snapshot, "m0", RunKind::Failing) && snapshot.probes[&TargetKey::of("m0")].report().is_some());
}
