//! `init` and `join` with real etcd processes on loopback addresses of this computer: with the default version of etcd,
//! or with `E2E_FULL` with every minor version. The first test always runs with all versions in the project's cache.

mod ipv6;
mod machine;
mod releases;
mod side_by_side;
mod tuning;

use std::fs;
use std::path::Path;
use std::time::Duration;

use machine::{Machine, Network};
use releases::{all_releases, releases};

fn names(count: u32) -> Vec<String> {
    (1..=count).map(|number| format!("m{number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_join_are_interrupted_and_come_back() {
    for release in all_releases() {
        let network = Network::new(&release);
        let first = network.machine(1);

        // The run is interrupted at later and later points.
        for step in 0..8 {
            let _ = tokio::time::timeout(Duration::from_millis(step * 40), first.init()).await;
        }
        first.init().await.unwrap();
        assert_eq!(first.members(), names(1));
        let record = fs::read(first.paths().member_record()).unwrap();
        first.init().await.unwrap();
        assert_eq!(fs::read(first.paths().member_record()).unwrap(), record, "a second init changes nothing");

        let second = network.machine(2).with_authority_of(&first);
        for step in 0..16 {
            let _ = tokio::time::timeout(Duration::from_millis(step * 20), second.join(&[&first])).await;
            assert!(first.members().len() <= 2, "it is added once only: {:?}", first.members());
        }
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(2));

        // Two machines join at the same time, one of them through a member that does not exist.
        let third = network.machine(3).with_authority_of(&first);
        let fourth = network.machine(4).with_authority_of(&first);
        let (through_first, through_second) = ([&fourth, &first], [&third, &second]);
        let (a, b) = tokio::join!(third.join(&through_first), fourth.join(&through_second));
        a.unwrap();
        b.unwrap();
        assert_eq!(first.members(), names(4));

        // A member that was stopped, or killed, comes back.
        fourth.stop();
        fourth.join(&[&first]).await.unwrap();
        fourth.kill_etcd();
        fourth.asks(&["get", "x"]);
        assert_eq!(first.members(), names(4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_that_was_given_an_address_is_not_joined() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let other = network.machine(2).with_authority_of(&first);
        other.init().await.unwrap();
        let (own_id, other_id) = (first.cluster_id(), other.cluster_id());
        assert_ne!(own_id, other_id);

        let third = network.machine(3).with_authority_of(&first);
        let message = format!("{:#}", third.join_as(&[&other], Some(own_id), false).await.unwrap_err());
        assert!(
            message.contains(&format!("a member of cluster {other_id:x} answered, and none of {own_id:x}")),
            "{message}"
        );
        third.join_as(&[&other, &first], Some(own_id), true).await.unwrap();
        assert_eq!((third.cluster_id(), other.members()), (own_id, vec!["m2".to_owned()]));
        assert_eq!(first.members(), ["m1", "m3"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_disk_never_starts_an_empty_cluster() {
    for release in releases() {
        let network = Network::new(&release);
        let only = network.machine(1);
        only.init().await.unwrap();
        only.asks(&["put", "x", "here"]);
        let copy = network.machine(2).root.join("copy");
        only.copy_data(&copy);
        only.lose_disk();

        only.start();
        let told = only.refusal();
        assert!(told.contains("its data is gone"), "{told}");
        assert!(only.log().contains(&format!("etcd is not started: {}", told.trim_end())), "{}", only.log());
        assert_eq!(fs::read_dir(only.paths().data_dir()).unwrap().count(), 0, "nothing was made");
        let message = only.init().await.unwrap_err().to_string();
        assert!(message.contains("another, empty cluster"), "{message}");
        // Even if somebody bypasses the guard, etcd itself does not start.
        assert!(only.etcd_without_guard().is_some_and(|code| code != 0), "etcd {} starts", release.version);

        // The disk is back. The machine had lost power, so the copy of the running member is as good as its last state.
        only.put_data(&copy);
        only.init().await.unwrap();
        assert_eq!(only.asks(&["get", "x", "--print-value-only"]), "here\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_lost_right_after_the_first_start_is_missed_too() {
    for release in releases() {
        let network = Network::new(&release);
        let only = network.machine(1);
        // The machine is killed as soon as etcd has its log, before etcd.env says so.
        let log = only.paths().wal_dir();
        let begun = async {
            while !log.is_dir() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            _ = only.init() => {}
            () = begun => {}
        }
        only.lose_disk();
        only.start();
        assert!(only.refusal().contains("data is gone"));
        assert!(only.init().await.unwrap_err().to_string().contains("its data is gone"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_of_the_data_never_votes() {
    for release in releases() {
        let network = Network::new(&release);
        let only = network.machine(1);
        only.init().await.unwrap();
        only.asks(&["put", "x", "old"]);
        only.stop();
        let (older, latest) = (only.root.join("older"), only.root.join("latest"));
        only.copy_data(&older);
        only.start();
        only.asks(&["put", "x", "new"]);
        only.stop();
        only.copy_data(&latest);
        only_the_latest_starts(&only, &older, &latest).await;
    }
}

/// Between the copy and the loss etcd was stopped, and not started.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_data_from_before_the_last_stop_never_votes() {
    for release in releases() {
        let network = Network::new(&release);
        let only = network.machine(1);
        only.init().await.unwrap();
        only.asks(&["put", "x", "old"]);
        let (older, latest) = (only.root.join("older"), only.root.join("latest"));
        let starts = only.starts();
        only.copy_data(&older);
        only.asks(&["put", "x", "new"]);
        only.stop();
        assert_eq!(only.starts(), starts, "its start does not tell the copy from what it has: only its stop does");
        only.copy_data(&latest);
        only_the_latest_starts(&only, &older, &latest).await;
    }
}

/// Given two copies of a stopped member's data, the guard refuses the older one, and with the latest one nothing is
/// lost.
async fn only_the_latest_starts(only: &Machine, older: &Path, latest: &Path) {
    only.put_data(older);
    only.start();
    let told = only.refusal();
    assert!(told.contains("older copy"), "{told}");
    let message = only.init().await.unwrap_err().to_string();
    assert!(message.contains("older copy"), "{message}");

    only.put_data(latest);
    only.start();
    assert_eq!(only.asks(&["get", "x", "--print-value-only"]), "new\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_without_its_data_waits_for_its_removal() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let _second = network.member(2, &first).await;
        let third = network.member(3, &first).await;

        third.lose_disk();
        third.start();
        third.refusal();
        let message = third.join(&[&first]).await.unwrap_err().to_string();
        assert!(message.contains("must be removed from the cluster"), "{message}");
        assert_eq!(first.members(), names(3), "it changed nothing");

        first.asks(&["member", "remove", &third.id()]);
        let message = third.join(&[&first]).await.unwrap_err().to_string();
        assert!(message.contains("not added again by itself"), "{message}");
        assert_eq!(first.members(), names(2));

        third.forget();
        third.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_machine_that_is_reinstalled_does_not_start_an_empty_cluster() {
    let day = time::Duration::hours(24);
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init_until(day).await.unwrap();
        let second = network.member(2, &first).await;
        let _third = network.member(3, &first).await;
        first.init_until(-day).await.unwrap();

        let id = first.id();
        first.is_reinstalled();
        let message = first.init_until(-day).await.unwrap_err().to_string();
        assert!(message.contains("a second, empty one"), "{message}");
        assert!(!first.paths().data_dir().exists() && !first.paths().unit().exists(), "nothing was made");
        assert_eq!(second.members(), names(3));

        // This is what the message says to do.
        second.asks(&["member", "remove", &id]);
        first.join(&[&second]).await.unwrap();
        assert_eq!(second.members(), names(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_waits_until_the_member_that_had_its_address_is_removed() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let _second = network.member(2, &first).await;
        let mut third = network.member(3, &first).await;

        let former = third.id();
        third.is_reinstalled();
        third.is_called("m4");
        let message = format!("{:#}", third.join_as(&[&first], None, false).await.unwrap_err());
        assert!(message.contains(&format!("member {former} (m3)")), "{message}");
        {
            let through = [&first];
            let joins = third.join(&through);
            tokio::pin!(joins);
            let early = tokio::time::timeout(Duration::from_secs(2), &mut joins).await;
            assert!(early.is_err(), "it waits: {early:?}");
            assert_eq!(first.members(), names(3), "it changed nothing");
            first.asks(&["member", "remove", &former]);
            joins.await.unwrap();
        }
        assert_ne!(third.id(), former);
        assert_eq!(first.members(), ["m1", "m2", "m4"]);
    }
}

/// The record of the membership is on the lost disk, but `/etc` is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_lost_its_record_too_does_not_come_back_by_itself() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let _second = network.member(2, &first).await;
        let third = network.member(3, &first).await;

        let id = third.id();
        third.lose_var();
        third.start();
        third.refusal();
        let message = third.join(&[&first]).await.unwrap_err().to_string();
        assert!(message.contains("must be removed from the cluster"), "{message}");
        assert_eq!(first.members(), names(3), "it changed nothing");

        first.asks(&["member", "remove", &id]);
        let message = third.join(&[&first]).await.unwrap_err().to_string();
        assert!(message.contains("not added again by itself"), "{message}");
        assert_eq!(first.members(), names(2));

        third.forget();
        third.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_settings_are_gone_is_found_where_its_data_is() {
    for release in releases() {
        let network = Network::new(&release);
        let limit = ["--max-learners", "3"];
        let first = network.machine(1).with(&limit);
        first.init().await.unwrap();
        let mut second = network.machine(2).with(&["--data-dir", "/mnt/etcd"]).with(&limit).with_authority_of(&first);
        second.join(&[&first]).await.unwrap();
        // Only the other members can say whether it still is a member, and they need a quorum without it.
        let third = network.machine(3).with(&limit).with_authority_of(&first);
        third.join(&[&first]).await.unwrap();
        second.stop();
        second.flags.truncate(2);
        fs::remove_file(second.paths().etcd_env()).unwrap();
        let has_limit = !release.version.starts_with("3.5.");
        if has_limit {
            let message = second.asked_for().err().unwrap().to_string();
            assert!(message.contains("--max-learners is missing"), "{message}");
            second = second.with(&limit);
        }
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(3));
        let env = fs::read_to_string(second.paths().etcd_env()).unwrap();
        assert_eq!(env.contains("ETCD_MAX_LEARNERS=3"), has_limit, "{env}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_out_of_space_takes_a_member() {
    for release in releases() {
        let network = Network::new(&release);
        let quota = ["--etcd-flag", "quota-backend-bytes=16777216"];
        let mut first = network.machine(1).with(&quota);
        first.init().await.unwrap();
        let full = (0..40).find(|number| !first.puts_a_megabyte(&format!("key-{number}")));
        assert!(full.is_some(), "the quota is not in force");
        assert!(first.asks(&["alarm", "list"]).contains("NOSPACE"));

        let second = network.machine(2).with(&quota).with_authority_of(&first);
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(2));
        // Another run without the flag keeps the setting.
        first.stop();
        first.flags.truncate(2);
        first.init().await.unwrap();
        let env = fs::read_to_string(first.paths().etcd_env()).unwrap();
        assert!(env.contains("ETCD_QUOTA_BACKEND_BYTES=16777216"), "{env}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_cannot_start_with_what_it_was_told_is_told_again() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let second = network.machine(2).with_authority_of(&first);
        // The member was added and started, and then the cluster changed before etcd could read its members.
        while second.join(&[&first]).await.is_err() {}
        first.asks(&["member", "remove", &second.id()]);
        second.stop();
        second.forget();
        first.adds_learner(&second);
        let env = fs::read_to_string(second.paths().etcd_env()).unwrap();
        let other = format!("ETCD_INITIAL_CLUSTER=m1=https://{}:2380,m9=https://127.0.0.9:2380,m2=", first.address);
        fs::write(second.paths().etcd_env(), env.replace("ETCD_INITIAL_CLUSTER=m2=", &other)).unwrap();
        second.start();
        let before = second.starts();
        while second.starts() < before + 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(2));
    }
}

/// Versions before 3.5.20 lose a promotion (etcd#19557, #20793), no matter who added the learner, and when.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_is_neither_started_nor_promoted_by_a_version_that_is_too_old() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();

        let mut second = network.machine(2).with_authority_of(&first);
        second.says_it_is("3.5.15");
        let id = first.adds_learner(&second);
        let message = second.join(&[&first]).await.unwrap_err().to_string();
        assert!(message.contains("3.5.15"), "{message}");
        assert_eq!((second.starts(), first.members()), (0, vec![" (learner)".to_owned(), "m1".to_owned()]));

        first.asks(&["member", "remove", &id]);
        second.says_it_is(&release.version);
        let learner = becomes_learner(&second, &first).await;
        second.says_it_is("3.5.15");
        let message = second.join(&[&first]).await.unwrap_err().to_string();
        assert!(message.contains("is not promoted") && message.contains("3.5.15"), "{message}");
        assert_eq!(first.members(), learner);

        second.says_it_is(&release.version);
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(2));
    }
}

/// etcd promotes a learner by what it has acknowledged, even if it does not run. Then the only other voter would have
/// no quorum.
#[tokio::test(flavor = "multi_thread")]
async fn a_learner_that_does_not_run_is_not_promoted() {
    for release in releases() {
        let network = Network::new(&release);
        let first = network.machine(1);
        first.init().await.unwrap();
        let mut second = network.machine(2).with_authority_of(&first);
        let learner = becomes_learner(&second, &first).await;

        second.stop();
        second.etcd_ends_at_once();
        let again = tokio::time::timeout(Duration::from_secs(5), second.join(&[&first])).await;
        assert!(again.is_err(), "it waits: {again:?}");
        assert_eq!(first.members(), learner);
        first.asks(&["put", "still", "served"]);

        second.stop();
        second.says_it_is(&release.version);
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), names(2));
    }
}

/// Lets machine 2 join, and interrupts it when it has started but is not promoted yet. Returns the members.
async fn becomes_learner(second: &Machine, first: &Machine) -> [String; 2] {
    let log = second.paths().wal_dir();
    let begun = async {
        while !log.is_dir() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let through = [first];
    tokio::select! {
        _ = second.join(&through) => {}
        () = begun => {}
    }
    let learner = ["m1", "m2 (learner)"].map(str::to_owned);
    while first.members() != learner {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    learner
}
