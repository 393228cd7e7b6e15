//! Members that give the answers that a test chooses, over TLS and HTTP/2: real members cannot change places between
//! two requests.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};

use prost::Message;
use rstest::rstest;
use rustls::{ServerConnection, StreamOwned};

use super::*;
use crate::etcd::failure::tests::{GOOD, authority, issued, tls};
use crate::pki::authority::Authority;

const OURS: u64 = 0xc1;
const STRANGERS: u64 = 0xc2;
/// The member that is asked about, added or changed.
const ID: u64 = 0x44;
const ANOTHER: u64 = 0x45;

/// `ResponseHeader`.
#[derive(Clone, Copy, PartialEq, Message)]
struct Header {
    #[prost(uint64, tag = "1")]
    cluster_id: u64,
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

/// `StatusResponse`.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(uint64, tag = "7")]
    applied: u64,
    #[prost(string, tag = "11")]
    storage_version: String,
}

/// `MemberAddResponse`. With the header alone, it is also the answer to a promotion and to a removal.
#[derive(Clone, PartialEq, Message)]
struct Changed {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, optional, tag = "2")]
    added: Option<OfMember>,
}

/// `Member`, and the requests to promote and to remove one.
#[derive(Clone, Copy, PartialEq, Message)]
struct OfMember {
    #[prost(uint64, tag = "1")]
    id: u64,
}

fn status(cluster_id: u64, member_id: u64, version: &str) -> Vec<u8> {
    let (version, storage_version) = (version.to_owned(), "3.6.0".to_owned());
    let header = Some(Header { cluster_id, member_id });
    Status { header, version, applied: 7, storage_version }.encode_to_vec()
}

fn changed(cluster_id: u64, added: Option<u64>) -> Vec<u8> {
    let header = Some(Header { cluster_id, member_id: ANOTHER });
    Changed { header, added: added.map(|id| OfMember { id }) }.encode_to_vec()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// On data and headers: they are the last ones. On settings: they are an acknowledgement.
const END: u8 = 1;
const END_OF_HEADERS: u8 = 4;
/// What precedes a gRPC message: a byte that says that it is not compressed, and its length in four bytes.
const PREFIX: usize = 5;

fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

fn answer(stream: [u8; 4], message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    // Status 200 and the content type by their indices in HTTP/2's static table; the gRPC status by its name.
    let head = [&[0x88, 0x0f, 0x10, 16][..], b"application/grpc"].concat();
    let trailer = [&[0, 11][..], b"grpc-status", &[1], b"0"].concat();
    [
        frame(HEADERS, END_OF_HEADERS, stream, &head),
        frame(DATA, 0, stream, &[&[0], &length[..], message].concat()),
        frame(HEADERS, END_OF_HEADERS | END, stream, &trailer),
    ]
    .concat()
}

/// Answers the requests one by one with these messages, and reports what each request asked. Then closes the
/// connection.
fn talk(mut stream: impl Read + Write, answers: &[Vec<u8>], asked: &Sender<Vec<u8>>) -> io::Result<()> {
    let mut answers = answers.iter();
    stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()])?;
    stream.write_all(&frame(SETTINGS, 0, [0; 4], &[]))?;
    let mut request = Vec::new();
    loop {
        stream.flush()?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, of @ ..] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        stream.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & END == 0 => stream.write_all(&frame(SETTINGS, END, [0; 4], &[]))?,
            DATA => request.extend(payload),
            _ => {}
        }
        if kind == DATA && flags & END != 0 {
            // Not every test keeps the receiver.
            let _ = asked.send(request.split_off(PREFIX));
            request.clear();
            let Some(message) = answers.next() else { return Ok(()) };
            stream.write_all(&answer(of, message))?;
        }
    }
}

/// A member that gives these answers. Returns its endpoint, and the messages that it receives.
fn member_that_says(authority: &Authority, answers: Vec<Vec<u8>>) -> (Endpoint, Receiver<Vec<u8>>) {
    let tls = tls(&issued(authority, GOOD), authority);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = ServerConnection::new(tls).unwrap();
        // The client closes the connection at the end of the test.
        let _ = talk(StreamOwned::new(connection, stream), &answers, &tell);
    });
    (Endpoint::at(Ipv4Addr::LOCALHOST.into(), port), asked)
}

fn cluster(authority: &Authority, endpoints: Vec<Endpoint>) -> Cluster {
    let leaf = issued(authority, GOOD);
    let (certificate, key) = (leaf.cert.pem(), leaf.signing_key.serialize_pem());
    Cluster::new(endpoints, authority.bundle_pem.clone(), certificate, key)
}

/// The cluster behind a member that gives these answers, and the messages that the member receives.
fn behind(answers: Vec<Vec<u8>>) -> (Cluster, Receiver<Vec<u8>>) {
    let authority = authority();
    let (endpoint, asked) = member_that_says(&authority, answers);
    (cluster(&authority, vec![endpoint]), asked)
}

fn listed() -> Membership {
    Membership { cluster_id: OURS, members: Vec::new() }
}

fn as_member(id: u64, message: &[u8]) -> bool {
    OfMember::decode(message) == Ok(OfMember { id })
}

/// Checks that the failure is transient and names both the cluster that answered and the expected one. Returns the
/// text.
#[track_caller]
fn names_both(failure: &Failure) -> &str {
    let Failure::Transient(why) = failure else { panic!("{failure:?}") };
    assert!(why.starts_with("a member of cluster c2 answered, and none of c1"), "{why}");
    why
}

/// If such a version were believed, it would decide whether this machine's learner may be promoted.
#[rstest]
#[case::of_another_cluster(STRANGERS, ID)]
#[case::another_member(OURS, ANOTHER)]
#[tokio::test]
async fn a_version_counts_only_from_the_member_that_is_asked(#[case] cluster_id: u64, #[case] member_id: u64) {
    let authority = authority();
    let (given_away, _) = member_that_says(&authority, vec![status(cluster_id, member_id, "3.6.99"); 2]);
    let (own, _) = member_that_says(&authority, vec![status(OURS, ID, "3.5.15")]);
    let mut member = Member {
        id: ID,
        name: "m1".to_owned(),
        peer_urls: Vec::new(),
        client_urls: vec![given_away.to_string()],
        learner: false,
    };
    let mut cluster = cluster(&authority, Vec::new());
    assert_eq!(cluster.versions(&listed(), &member).await, None);
    member.client_urls.push(own.to_string());
    let told = cluster.versions(&listed(), &member).await;
    assert_eq!(told, Some(("3.5.15".to_owned(), "3.6.0".to_owned())), "at its next URL");
}

/// If a cluster that is behind were believed, a learner that lacks most of the data would be promoted.
#[tokio::test]
async fn only_the_listed_cluster_tells_how_far_it_is() {
    let (mut cluster, _) = behind(vec![status(OURS, ID, "3.6.16"), status(STRANGERS, ID, "3.6.16")]);
    let progress = cluster.progress(&listed()).await.unwrap();
    assert_eq!((progress.member_id, progress.applied), (ID, 7));
    names_both(&cluster.progress(&listed()).await.unwrap_err());
}

#[tokio::test]
async fn a_member_that_another_cluster_has_added_is_taken_out_again() {
    let (mut cluster, asked) = behind(vec![changed(STRANGERS, Some(ID)), changed(STRANGERS, None)]);
    let failure = cluster.add(&listed(), "https://127.0.0.1:2380", true).await.unwrap_err();
    assert!(names_both(&failure).ends_with("member 44, which it has added, is removed again"), "{failure}");
    let asked: Vec<_> = asked.try_iter().collect();
    assert!(asked.len() == 2 && as_member(ID, &asked[1]), "{asked:?}");
}

#[tokio::test]
async fn a_member_that_stays_with_another_cluster_is_named() {
    let (mut cluster, _) = behind(vec![changed(STRANGERS, Some(ID))]);
    let failure = cluster.add(&listed(), "https://127.0.0.1:2380", true).await.unwrap_err();
    assert!(names_both(&failure).contains("member 44, which it has added, could not be removed again ("), "{failure}");
}

#[tokio::test]
async fn a_member_that_the_listed_cluster_has_added_stays() {
    let (mut cluster, asked) = behind(vec![changed(OURS, Some(ID))]);
    let (id, membership) = cluster.add(&listed(), "https://127.0.0.1:2380", true).await.unwrap();
    assert_eq!((id, membership.cluster_id, asked.try_iter().count()), (ID, OURS, 1));
}

#[tokio::test]
async fn a_promotion_counts_only_in_the_listed_cluster() {
    let (mut cluster, asked) = behind(vec![changed(OURS, None), changed(STRANGERS, None)]);
    cluster.promote(&listed(), ID).await.unwrap();
    names_both(&cluster.promote(&listed(), ID).await.unwrap_err());
    assert!(asked.try_iter().all(|message| as_member(ID, &message)));
}

#[tokio::test]
async fn a_removal_counts_only_in_the_listed_cluster() {
    let (mut cluster, asked) = behind(vec![changed(OURS, None), changed(STRANGERS, None)]);
    cluster.remove(&listed(), ID).await.unwrap();
    names_both(&cluster.remove(&listed(), ID).await.unwrap_err());
    assert!(asked.try_iter().all(|message| as_member(ID, &message)));
}

/// etcd does not answer a change that raft has dropped. But a change that is only slow must not be given up every time
/// before it is done.
#[test]
fn a_change_is_waited_for_as_long_as_before_or_longer() {
    let [short, long] = [10, 4_000].map(Duration::from_millis);
    assert_eq!(patience_after(CHANGE_PATIENCE, short), CHANGE_PATIENCE);
    assert_eq!(patience_after(CHANGE_PATIENCE, CHANGE_PATIENCE), CHANGE_PATIENCE * 2);
    assert_eq!(patience_after(long, short), long, "an answer that came at once does not say that the next one will");
    assert_eq!(patience_after(long, long), REQUEST_TIMEOUT);
    assert_eq!(patience_after(REQUEST_TIMEOUT, REQUEST_TIMEOUT), REQUEST_TIMEOUT, "etcd itself gives up before");
}
