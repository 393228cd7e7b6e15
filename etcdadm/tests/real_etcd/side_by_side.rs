//! Machines that join at the same time, or soon after each other.

use std::time::{Duration, Instant};

use crate::machine::Network;
use crate::names;
use crate::releases::{Release, all_releases, releases};

/// The versions of etcd that have `--max-learners`.
fn releases_with_several_learners() -> impl Iterator<Item = Release> {
    releases().into_iter().filter(|release| !release.version.starts_with("3.5."))
}

/// The versions of etcd whose clusters do not tell how old a silent member may be.
fn releases_without_storage_version() -> impl Iterator<Item = Release> {
    all_releases().into_iter().filter(|release| release.version.starts_with("3.5."))
}

/// The machines compete when they are added, when they start with a list that is outdated by then, and when they are
/// promoted.
#[tokio::test(flavor = "multi_thread")]
async fn machines_join_side_by_side() {
    for release in releases_with_several_learners() {
        let network = Network::new(&release);
        let machine = |number| network.machine(number).with(&["--max-learners", "3"]);
        let first = machine(1);
        first.init().await.unwrap();
        let [a, b, c] = [2, 3, 4].map(|number| machine(number).with_authority_of(&first));
        let begun = Instant::now();
        let through = [&first];
        let (a, b, c) = tokio::join!(a.join(&through), b.join(&through), c.join(&through));
        [a, b, c].into_iter().for_each(|joined| joined.unwrap());
        println!("etcd {}: three machines joined in {:?}", release.version, begun.elapsed());
        assert_eq!(first.members(), names(4));
    }
}

/// etcd refuses a member for five seconds after the first learner of a single voter is promoted.
#[tokio::test(flavor = "multi_thread")]
async fn the_learner_of_a_single_voter_lets_another_machine_join() {
    for release in releases_with_several_learners() {
        let network = Network::new(&release);
        let machine = |number| network.machine(number).with(&["--max-learners", "3"]);
        let first = machine(1);
        first.init().await.unwrap();
        let [a, b] = [2, 3].map(|number| machine(number).with_authority_of(&first));
        let through = [&first];
        let late = async {
            while first.members().len() < 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            let list = first.asks(&["member", "list"]);
            assert!(list.contains(", true"), "the other one is still a learner: {list}");
            b.join(&through).await
        };
        let (joined, late) = tokio::join!(a.join(&through), late);
        joined.unwrap();
        late.unwrap();
        assert_eq!(first.members(), names(3));
        assert!(!first.log().contains("rejecting member add"), "{}", first.log());
    }
}

/// The leader sends a snapshot to each of them, and sometimes what they have published of themselves is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_gets_its_name_in_a_snapshot_does_not_wait_for_it() {
    for release in releases() {
        let network = Network::new(&release);
        let machine = |number| network.machine(number).with(&["--etcd-flag", "snapshot-count=100"]);
        let first = machine(1);
        first.init().await.unwrap();
        for number in 0..250 {
            first.asks(&["put", "key", &number.to_string()]);
        }
        let machines = [2, 3, 4, 5].map(|number| machine(number).with_authority_of(&first));
        let mut restarted = 0;
        for machine in &machines {
            machine.join(&[&first]).await.unwrap();
            let log = machine.log();
            assert!(log.contains("applied snapshot"), "{log}");
            assert!(!log.contains("failed to publish local member"), "it has waited for its name: {log}");
            assert!(machine.starts() <= 2, "it was started {} times", machine.starts());
            restarted += u32::from(machine.starts() == 2);
        }
        println!("etcd {}: {restarted} of {} machines had their name in a snapshot", release.version, machines.len());
    }
}

/// With a vote that does not run yet, the four others could lose no member more.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_beside_a_silent_member_joins_as_a_learner() {
    for release in releases_without_storage_version() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let mut others = Vec::new();
        for number in 2..=5 {
            others.push(network.member(number, &first).await);
        }
        // etcd accepts no member until the last one has been connected for five seconds.
        tokio::time::sleep(Duration::from_secs(6)).await;
        others[3].stop();
        let sixth = network.machine(6).with_authority_of(&first);
        let through = [&first];
        let looks = async {
            while first.members().len() < 6 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            tokio::time::sleep(Duration::from_secs(12)).await;
            let list = first.asks(&["member", "list"]);
            assert_eq!(list.matches(", true").count(), 1, "it has no vote while a member is silent: {list}");
            others[3].start();
        };
        let (joined, ()) = tokio::join!(sixth.join(&through), looks);
        joined.unwrap();
        let list = first.asks(&["member", "list"]);
        assert_eq!((first.members(), list.matches(", true").count()), (names(6), 0), "{list}");
    }
}

/// A voter that serves no clients keeps voting, so nobody removes it before another member has its place. That member
/// must not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_serves_no_clients_tells_its_version_to_members() {
    for release in releases_without_storage_version() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        // A machine stops when it is dropped.
        let _second = network.member(2, &first).await;
        let third = network.member(3, &first).await;
        // etcd reads its certificate at every handshake. This one has another machine's address.
        for file in ["server.crt", "server.key"] {
            let [from, to] = [&first, &third].map(|machine| machine.root.join("etc/etcd/pki").join(file));
            std::fs::copy(from, to).unwrap();
        }
        let _fourth = network.member(4, &first).await;
        let list = first.asks(&["member", "list"]);
        assert_eq!((first.members(), list.matches(", true").count()), (names(4), 0), "{list}");
    }
}
