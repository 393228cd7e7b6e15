//! Members that reach each other over IPv6. Loopback has a single IPv6 address, so one member has that address, and the
//! other has an IPv4 address.

use std::net::{Ipv6Addr, TcpListener};
use std::time::{Duration, Instant};

use crate::machine::Network;
use crate::releases::releases;

/// Whether this computer has IPv6. Waits until etcd's ports are free at the IPv6 loopback address.
async fn is_there() -> bool {
    let bound = |port: u16| TcpListener::bind((Ipv6Addr::LOCALHOST, port));
    if bound(0).is_err() {
        return false;
    }
    let begin = Instant::now();
    while let Err(error) = bound(2379).and(bound(2380)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "another etcd has the address ::1: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_is_made_joined_and_comes_back() {
    for release in releases() {
        if !is_there().await {
            println!("the kernel has no IPv6");
            return;
        }
        let network = Network::new(&release);
        let mut first = network.machine(1);
        "[::1]".clone_into(&mut first.address);
        first.init().await.unwrap();
        first.init().await.unwrap();
        let second = network.machine(2).with_authority_of(&first);
        second.join(&[&first]).await.unwrap();
        assert_eq!(first.members(), ["m1", "m2"]);
        let list = second.asks(&["member", "list"]);
        for url in ["https://[::1]:2380", "https://[::1]:2379"] {
            assert!(list.contains(url), "{url} is not in the list:\n{list}");
        }

        // With two voters, the quorum is two.
        second.asks(&["put", "x", "there"]);
        first.kill_etcd();
        second.asks(&["put", "x", "here"]);
        assert_eq!(first.asks(&["get", "x", "--print-value-only"]), "here\n");
        first.stop();
        first.start();
        assert_eq!(second.members(), ["m1", "m2"]);
    }
}
