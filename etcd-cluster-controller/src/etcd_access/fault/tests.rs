//! These tests use real sockets, because what an error of the system looks like after three libraries have passed it on
//! cannot be guessed.

use super::*;
use crate::etcd_access::fake::{FakeMember, LIST, RANGE, Reply, STATUS, ca, list, status, voter};
use crate::etcd_access::{Client, Expected};
use crate::observation::probe::{Alarm, Outcome, Report};
use crate::pki::CertAndKey;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::atomic::Ordering;
use time::OffsetDateTime;

fn client(ca: &CertAndKey) -> Client {
    client_by_a_clock(ca, time::Duration::ZERO)
}

/// The client of a manager whose clock is ahead.
#[expect(clippy::disallowed_methods, reason = "certificates are checked against the real clock")]
fn client_by_a_clock(ca: &CertAndKey, ahead: time::Duration) -> Client {
    let now = std::time::SystemTime::now();
    Client::new(ca, OffsetDateTime::from(now) + ahead).unwrap()
}

async fn probe(ca: &CertAndKey, url: &str) -> Result<Report, Fault> {
    client(ca).probe(url, Expected::default()).await
}

fn theirs(result: Result<Report, Fault>) -> MemberFault {
    match result {
        Err(Fault::Theirs(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_voter_is_asked_for_its_status_and_a_linearizable_read() {
    let ca = ca();
    let member = FakeMember::start(&ca, voter(0xc, 1, &[1, 2]));
    let client = client(&ca);
    let report = client.probe(&member.url, Expected::default()).await.unwrap();
    assert_eq!((report.cluster_id, report.member_id, report.leader, report.learner), (0xc, 1, 1, false));
    assert_eq!((report.version.as_str(), report.database_size), ("3.6.16", 20_480));
    assert_eq!((report.database_quota, report.raft_term), (None, 2));
    let expires = report.certificate_expires.expect("the member shows a certificate");
    assert_eq!(Some(expires), client.probe(&member.url, Expected::default()).await.unwrap().certificate_expires);
    assert_eq!(Outcome::Answered(report).kind(), crate::observation::probe::RunKind::Healthy);
    assert_eq!(member.asked(), [STATUS, RANGE, STATUS, RANGE]);
    let (cluster, members) = client.members(&member.url).await.unwrap();
    assert_eq!((cluster, members.len(), members[&2].name.as_str()), (0xc, 2, "m2"));
    assert_eq!(member.accepted.load(Ordering::SeqCst), 1, "one connection serves them all");
}

#[tokio::test]
async fn a_member_is_asked_over_ipv6_as_over_ipv4() {
    let ca = ca();
    let Some(member) = FakeMember::start_over_ipv6(&ca, voter(0xc, 1, &[1, 2])) else {
        println!("the kernel has no IPv6");
        return;
    };
    assert!(member.url.starts_with("https://[::1]:"), "{}", member.url);
    let client = client(&ca);
    let report = client.probe(&member.url, Expected::default()).await.unwrap();
    assert_eq!((report.cluster_id, report.member_id), (0xc, 1));
    let (cluster, members) = client.members(&member.url).await.unwrap();
    assert_eq!((cluster, members.len()), (0xc, 2));
}

#[tokio::test]
async fn an_alarm_is_reported_and_a_learner_is_not_asked_what_it_refuses() {
    let ca = ca();
    let member = FakeMember::start(&ca, |path| match path {
        STATUS => {
            let mut status = status(0xc, 1, 2);
            status["isLearner"] = json!(true);
            status["errors"] = json!(["memberID:2 alarm:NOSPACE "]);
            Reply::Json(200, status)
        }
        _ => Reply::Json(503, json!({"code": 14, "message": "etcdserver: rpc not supported for learner"})),
    });
    let report = probe(&ca, &member.url).await.unwrap();
    assert!(report.learner && report.fault().is_none(), "{report:?}");
    assert_eq!(report.alarms, [Alarm { member_id: 2, kind: "NOSPACE".to_owned() }]);
    assert_eq!(member.asked(), [STATUS]);
}

#[tokio::test]
async fn a_member_without_a_quorum_is_told_from_one_that_is_gone() {
    let ca = ca();
    let leaderless = FakeMember::start(&ca, |_| Reply::Json(200, status(0xc, 1, 0)));
    let report = probe(&ca, &leaderless.url).await.unwrap();
    assert_eq!((report.linearizable, report.member_id), (Err(MemberFault::NoLeader), 1));
    for (reply, fault) in [
        (
            Reply::Json(503, json!({"code": 14, "message": "etcdserver: request timed out"})),
            MemberFault::Http { path: RANGE, status: 503, body: "etcdserver: request timed out".to_owned() },
        ),
        (Reply::Json(503, json!({"code": 14, "message": "etcdserver: no leader"})), MemberFault::NoLeader),
        (Reply::Never, MemberFault::NoAnswerInTime { seconds: 5 }),
    ] {
        leaderless
            .becomes(move |path| if path == STATUS { Reply::Json(200, status(0xc, 1, 2)) } else { reply.clone() });
        let report = probe(&ca, &leaderless.url).await.unwrap();
        assert_eq!((report.identity, report.linearizable), (Ok(()), Err(fault)));
    }
    // If etcd requires users, it checks permissions after the quorum has answered.
    leaderless.becomes(|path| match path {
        STATUS => Reply::Json(200, status(0xc, 1, 2)),
        _ => Reply::Json(400, json!({"code": 3, "message": "etcdserver: user name is empty"})),
    });
    assert_eq!(probe(&ca, &leaderless.url).await.unwrap().linearizable, Ok(()));
}

#[tokio::test]
async fn another_member_is_told_by_its_ids() {
    let ca = ca();
    let member = FakeMember::start(&ca, voter(0xc, 1, &[1]));
    let ask = |cluster_id, member_id| {
        let (client, url) = (client(&ca), member.url.clone());
        async move { client.probe(&url, Expected { cluster_id, member_id }).await.unwrap().identity }
    };
    assert_eq!(ask(Some(0xc), Some(1)).await, Ok(()));
    assert_eq!(ask(Some(0xc), Some(2)).await, Err(MemberFault::OtherMember { expected: 2, answered: 1 }));
    let other = MemberFault::OtherCluster { expected: 0xb, answered: 0xc };
    assert_eq!(ask(Some(0xb), Some(1)).await, Err(other));
}

#[tokio::test]
async fn ports_that_refuse_or_are_silent_are_theirs() {
    let ca = ca();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    // The kernel accepts the connection, but no process answers the TLS handshake.
    assert_eq!(theirs(probe(&ca, &url).await), MemberFault::NoAnswerInTime { seconds: 3 });
    drop(listener);
    assert_eq!(theirs(probe(&ca, &url).await), MemberFault::Refused);
}

#[tokio::test]
async fn tls_faults_name_whose_certificate_is_refused() {
    let (ca, other) = (ca(), ca());
    let stranger = FakeMember::start(&other, voter(0xc, 1, &[1]));
    let fault = theirs(probe(&ca, &stranger.url).await).to_string();
    assert_eq!(fault, "TLS: its certificate is not signed by the CA of this etcd cluster");
    let member = FakeMember::start(&ca, voter(0xc, 1, &[1]));
    let by_name = member.url.replace("127.0.0.1", "localhost");
    let fault = theirs(probe(&ca, &by_name).await);
    assert!(matches!(fault, MemberFault::Tls(_)), "the certificate is not for this name: {fault:?}");
}

#[tokio::test]
async fn a_client_certificate_that_is_refused_may_be_the_fault_of_either() {
    let (ca, other) = (ca(), ca());
    let distrustful = FakeMember::start_with(&ca, &other, voter(0xc, 1, &[1]));
    let member = FakeMember::start(&ca, voter(0xc, 1, &[1]));
    let probe = |hours, member: &FakeMember| {
        let (client, url) = (client_by_a_clock(&ca, time::Duration::hours(hours)), member.url.clone());
        async move { client.probe(&url, Expected::default()).await }
    };
    assert!(probe(23, &member).await.is_ok(), "a certificate is valid from a day ago");
    for (hours, member) in [(25, &member), (0, &distrustful)] {
        let fault = probe(hours, member).await.unwrap_err();
        // The alert can be lost if the connection is reset right after it.
        let is_lost = matches!(fault, Fault::Theirs(MemberFault::Closed(_)));
        assert!(is_lost || matches!(fault, Fault::Either(Distrust::ClientCertificateRefused(_))), "{fault:?}");
    }
}

#[test]
fn whose_fault_a_certificate_is() {
    use rustls::pki_types::UnixTime;
    let (time, other) =
        (UnixTime::since_unix_epoch(Duration::ZERO), UnixTime::since_unix_epoch(Duration::from_secs(9)));
    let of = |wrong| of_tls(&rustls::Error::InvalidCertificate(wrong));
    for wrong in [
        CertificateError::Expired,
        CertificateError::ExpiredContext { time, not_after: other },
        CertificateError::NotValidYet,
        CertificateError::NotValidYetContext { time, not_before: other },
    ] {
        assert!(matches!(of(wrong.clone()), Fault::Either(Distrust::NotValidNow(_))), "by whose clock? {wrong:?}");
    }
    for wrong in [CertificateError::UnknownIssuer, CertificateError::NotValidForName, CertificateError::BadEncoding] {
        assert!(matches!(of(wrong.clone()), Fault::Theirs(MemberFault::Tls(_))), "{wrong:?}");
    }
}

#[tokio::test]
async fn answers_that_are_not_etcds_are_bounded_and_lead_nowhere() {
    let ca = ca();
    let member = FakeMember::start(&ca, voter(0xc, 1, &[1]));
    let elsewhere = FakeMember::start(&ca, voter(0xc, 2, &[2]));
    let to = format!("{}{STATUS}", elsewhere.url);
    member.becomes(move |_| Reply::Redirect(to.clone()));
    assert!(matches!(theirs(probe(&ca, &member.url).await), MemberFault::Http { status: 307, .. }));
    assert!(elsewhere.asked().is_empty());
    for (reply, text) in [
        (Reply::Long(70_000), "more than 64 KiB"),
        (Reply::Text("<html>"), "expected value"),
        (Reply::Json(200, json!({})), "cluster_id is missing"),
    ] {
        member.becomes(move |_| reply.clone());
        let fault = theirs(probe(&ca, &member.url).await);
        assert!(matches!(&fault, MemberFault::Garbled(_)), "{fault:?}");
        assert!(fault.to_string().contains(text) || text == "cluster_id is missing", "{fault}");
    }
    member.becomes(|path| if path == LIST { Reply::Long(1_100_000) } else { Reply::Close });
    let fault = client(&ca).members(&member.url).await.unwrap_err();
    assert!(fault.to_string().contains("more than 1024 KiB"), "{fault}");
    assert!(matches!(theirs(probe(&ca, &member.url).await), MemberFault::Closed(_)));
}

#[tokio::test]
async fn a_connection_that_was_closed_between_probes_is_no_failure() {
    let ca = ca();
    let member = FakeMember::start(&ca, |path| {
        Reply::JsonAndClose(if path == STATUS { status(0xc, 1, 1) } else { list(0xc, &[1]) })
    });
    let client = client(&ca);
    for _ in 0..20 {
        client.probe(&member.url, Expected::default()).await.unwrap();
    }
    assert!(member.accepted.load(Ordering::SeqCst) >= 40);
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_blames_nobody() {
    let fault = probe(&ca(), "https://no-such-host.invalid:2379").await.unwrap_err();
    assert!(matches!(fault, Fault::Ours(OurFault::NameResolution(_))), "{fault:?}");
    let fault = probe(&ca(), "not a URL").await.unwrap_err();
    assert!(matches!(fault, Fault::Ours(OurFault::Internal(_))), "{fault:?}");
}

/// The test runs in its own process, because the limit holds for the whole process.
#[test]
fn want_of_file_descriptors_blames_nobody() {
    let program = std::env::current_exe().unwrap();
    let name = "etcd_access::fault::tests::a_process_without_file_descriptors";
    let output = Command::new(program).args(["--exact", name, "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn a_process_without_file_descriptors() {
    let ca = ca();
    let member = FakeMember::start(&ca, voter(0xc, 1, &[1]));
    let client = client(&ca);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).unwrap();
    let connected = client.probe(&member.url, Expected::default()).await;
    let resolved = client.probe("https://localhost:1", Expected::default()).await;
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(connected.unwrap_err(), OurFault::FileDescriptors.into());
    assert!(matches!(resolved, Err(Fault::Ours(_))), "{resolved:?}");
    client.probe(&member.url, Expected::default()).await.unwrap();
}

#[test]
fn errors_of_the_system_are_told_apart() {
    let of = |errno: Errno| of_io(&io::Error::from_raw_os_error(errno.raw_os_error()));
    for errno in [Errno::MFILE, Errno::NFILE] {
        assert_eq!(of(errno), Some(OurFault::FileDescriptors.into()));
    }
    for errno in [Errno::NOBUFS, Errno::ADDRNOTAVAIL, Errno::NOMEM, Errno::PERM, Errno::NETUNREACH] {
        assert!(matches!(of(errno), Some(Fault::Ours(_))), "{errno:?}");
    }
    assert_eq!(of(Errno::CONNREFUSED), Some(MemberFault::Refused.into()));
    assert_eq!(of(Errno::HOSTUNREACH), Some(MemberFault::Unreachable.into()));
    assert!(matches!(of(Errno::CONNRESET), Some(Fault::Theirs(MemberFault::Closed(_)))));
}

#[test]
fn silence_that_we_have_overslept_is_ours() {
    let limit = Duration::from_secs(5);
    assert_eq!(late(limit, Duration::from_millis(20)), MemberFault::NoAnswerInTime { seconds: 5 }.into());
    assert!(matches!(late(limit, Duration::from_secs(2)), Fault::Ours(OurFault::Internal(_))));
}
