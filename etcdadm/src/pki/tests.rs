use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rstest::rstest;
use tempfile::TempDir;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::*;
use crate::settings::tests::example;

struct Fixture {
    _root: TempDir,
    paths: Paths,
    settings: Settings,
    now: OffsetDateTime,
}

fn fixture() -> Fixture {
    let root = tempfile::tempdir().unwrap();
    let settings = example();
    let paths = settings.paths(root.path());
    Fixture { _root: root, paths, settings, now: OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap() }
}

/// Authorities as people make them with openssl: name of the files in `testdata`.
const AUTHORITIES: [&str; 6] =
    ["pkcs1-rsa", "pkcs8-rsa", "sec1-p256", "sec1-p384-parameters", "pkcs8-p256", "pkcs8-ed25519"];

fn put_authority(fixture: &Fixture, name: &str) {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pki/testdata");
    let read = |extension: &str| fs::read(testdata.join(format!("{name}.{extension}"))).unwrap();
    files::write(&fixture.paths.certificate("ca"), &read("crt"), 0o644).unwrap();
    files::write(&fixture.paths.key("ca"), &read("key"), 0o600).unwrap();
}

fn der(path: &Path) -> Vec<u8> {
    Pem::iter_from_buffer(&fs::read(path).unwrap()).next().unwrap().unwrap().contents
}

#[test]
fn leaves_of_every_kind_of_authority_are_what_etcd_and_clients_need() {
    for name in AUTHORITIES {
        let f = fixture();
        put_authority(&f, name);
        let authority = Authority::load(&f.paths, f.now).unwrap().unwrap();
        let issued = ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
        assert_eq!(issued, [SERVER, PEER, ETCDCTL, API_SERVER], "{name}");
        let ca_der = der(&f.paths.certificate("ca"));
        let (_, ca) = X509Certificate::from_der(&ca_der).unwrap();
        for leaf_name in issued {
            assert_eq!(fs::metadata(f.paths.key(leaf_name)).unwrap().permissions().mode() & 0o777, 0o600);
            let leaf_der = der(&f.paths.certificate(leaf_name));
            let (_, leaf) = X509Certificate::from_der(&leaf_der).unwrap();
            leaf.verify_signature(Some(ca.public_key())).unwrap();
            assert_eq!(leaf.issuer().as_raw(), ca.subject().as_raw(), "{name}: Go looks issuers up by their raw name");
            assert_eq!(leaf.public_key().algorithm.algorithm.to_id_string(), "1.2.840.10045.2.1", "ECDSA");
            assert!(!leaf.is_ca());
            assert!(leaf.validity().not_after <= ca.validity().not_after);
        }
    }
}

#[test]
fn no_leaf_is_written_that_would_not_be_of_its_authority() {
    let f = fixture();
    put_authority(&f, "refused/twice");
    let authority = Authority::load(&f.paths, f.now).unwrap().unwrap();
    let error = ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap_err().to_string();
    assert!(error.contains("it is of another authority; the subject of the authority"), "{error}");
    assert!(!f.paths.certificate(SERVER).exists() && !f.paths.key(SERVER).exists());
}

#[test]
fn names_and_usages() {
    let f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    let described: Vec<String> = [SERVER, PEER, ETCDCTL, API_SERVER]
        .map(|name| {
            let der = der(&f.paths.certificate(name));
            let (_, leaf) = X509Certificate::from_der(&der).unwrap();
            let usage = leaf.extended_key_usage().unwrap().unwrap().value;
            let sans = leaf.subject_alternative_name().unwrap();
            let sans = sans.map(|s| s.value.general_names.iter().map(ToString::to_string).collect::<Vec<_>>());
            format!(
                "{name}: {} server={} client={} {}",
                leaf.subject(),
                usage.server_auth,
                usage.client_auth,
                sans.unwrap_or_default().join(" ")
            )
        })
        .into();
    insta::assert_snapshot!(described.join("\n"));
}

#[test]
fn good_leaves_are_kept() {
    let f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    let before = fs::read(f.paths.certificate(SERVER)).unwrap();
    assert!(ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap().is_empty());
    assert_eq!(fs::read(f.paths.certificate(SERVER)).unwrap(), before);
}

#[test]
fn leaves_that_no_longer_do_are_issued_again() {
    let f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    let all = [SERVER, PEER, ETCDCTL, API_SERVER];
    let ensure =
        |settings: &Settings, authority: &Authority, now| ensure_leaves(&f.paths, settings, authority, now).unwrap();
    assert_eq!(ensure(&f.settings, &authority, f.now), all);

    let mut moved = f.settings.clone();
    moved.address = "10.0.0.9".parse().unwrap();
    assert_eq!(ensure(&moved, &authority, f.now), [SERVER, PEER], "another address");
    moved.extra_sans.push(San::Dns("more.example.com".to_owned()));
    assert_eq!(ensure(&moved, &authority, f.now), [SERVER], "another name for clients");
    moved.name = "other".to_owned();
    assert_eq!(ensure(&moved, &authority, f.now), [SERVER, PEER], "another member name");

    fs::remove_file(f.paths.key(ETCDCTL)).unwrap();
    fs::copy(f.paths.key(PEER), f.paths.key(API_SERVER)).unwrap();
    assert_eq!(ensure(&moved, &authority, f.now), [ETCDCTL, API_SERVER], "no key, and the wrong key");

    let later = f.now + time::Duration::days(366);
    assert_eq!(ensure(&moved, &authority, later), all, "expired");
    let other = Authority::create(&f.paths, f.now).unwrap();
    assert_eq!(ensure(&moved, &other, later), all, "another authority of the same name");
}

#[test]
fn of_a_bundle_the_certificate_of_the_key_signs() {
    let f = fixture();
    put_authority(&f, "pkcs8-p256");
    let second = fs::read_to_string(f.paths.certificate("ca")).unwrap();
    let first = Authority::create(&f.paths, f.now).unwrap().bundle_pem;
    put_authority(&f, "pkcs8-p256");
    let bundle = format!("{first}{second}");
    files::write(&f.paths.certificate("ca"), bundle.as_bytes(), 0o644).unwrap();
    let authority = Authority::load(&f.paths, f.now).unwrap().unwrap();
    assert_eq!(authority.bundle_pem, bundle, "members trust the whole bundle");
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    let ca_der = Pem::iter_from_buffer(second.as_bytes()).next().unwrap().unwrap().contents;
    let leaf_der = der(&f.paths.certificate(SERVER));
    let (_, ca) = X509Certificate::from_der(&ca_der).unwrap();
    X509Certificate::from_der(&leaf_der).unwrap().1.verify_signature(Some(ca.public_key())).unwrap();
}

#[rstest]
#[case("ca.key", None, "ca.key is missing")]
#[case("ca.crt", None, "ca.crt is missing")]
#[case("ca.key", Some("nonsense"), "key in PEM form")]
#[case("ca.crt", Some("nonsense"), "no certificate")]
#[case(
    "ca.key",
    Some("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
    "encrypted"
)]
#[case("ca.key", Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "unsupported kind or damaged")]
fn an_authority_that_cannot_sign_is_refused(#[case] file: &str, #[case] content: Option<&str>, #[case] named: &str) {
    let f = fixture();
    put_authority(&f, "pkcs8-p256");
    let path = f.paths.certificate("ca").with_file_name(file);
    match content {
        None => fs::remove_file(&path).unwrap(),
        Some(content) => fs::write(&path, content).unwrap(),
    }
    let message = format!("{:#}", Authority::load(&f.paths, f.now).unwrap_err());
    assert!(message.contains(named), "{message}");
}

#[test]
fn a_key_of_another_authority_is_refused() {
    let f = fixture();
    put_authority(&f, "pkcs8-p256");
    let certificate = fs::read(f.paths.certificate("ca")).unwrap();
    put_authority(&f, "sec1-p256");
    fs::write(f.paths.certificate("ca"), certificate).unwrap();
    let message = format!("{:#}", Authority::load(&f.paths, f.now).unwrap_err());
    assert!(message.contains("is the key of none of the certificates"), "{message}");
}

#[test]
fn an_authority_out_of_its_time_is_refused_and_none_is_none() {
    let f = fixture();
    assert!(Authority::load(&f.paths, f.now).unwrap().is_none());
    Authority::create(&f.paths, f.now).unwrap();
    for (when, named) in
        [(f.now + time::Duration::days(3651), "expired"), (f.now - time::Duration::days(2), "only from")]
    {
        let message = format!("{:#}", Authority::load(&f.paths, when).unwrap_err());
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn a_leaf_is_no_authority() {
    let f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    fs::copy(f.paths.certificate(SERVER), f.paths.certificate("ca")).unwrap();
    fs::copy(f.paths.key(SERVER), f.paths.key("ca")).unwrap();
    let message = format!("{:#}", Authority::load(&f.paths, f.now).unwrap_err());
    assert!(message.contains("CA:TRUE"), "{message}");
}

#[test]
fn a_leaf_that_is_issued_again_keeps_the_extra_names() {
    let mut f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    f.settings.extra_sans.clear();
    let later = f.now + time::Duration::days(366);
    assert_eq!(ensure_leaves(&f.paths, &f.settings, &authority, later).unwrap().len(), 4);
    let names = leaf::names(&fs::read(f.paths.certificate(SERVER)).unwrap());
    assert!(names.contains(&San::Dns("etcd.example.com".to_owned())), "{names:?}");
}

/// The other members know the member by the old names until its peer URL is changed.
#[test]
fn a_peer_certificate_that_is_issued_again_keeps_the_old_names() {
    let mut f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    let before = leaf::names(&fs::read(f.paths.certificate(PEER)).unwrap());
    f.settings.address = "10.0.0.9".parse().unwrap();
    f.settings.name = "other".to_owned();
    ensure_leaves(&f.paths, &f.settings, &authority, f.now).unwrap();
    let after = leaf::names(&fs::read(f.paths.certificate(PEER)).unwrap());
    assert!(before.iter().all(|name| after.contains(name)), "{after:?}");
    assert!(after.contains(&San::Ip(f.settings.address)), "{after:?}");
}

#[test]
fn leaves_hold_for_clocks_a_day_behind_but_not_before_their_authority() {
    let f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    let not_before = |now: OffsetDateTime| {
        fs::remove_file(f.paths.certificate(PEER)).unwrap_or_default();
        ensure_leaves(&f.paths, &f.settings, &authority, now).unwrap();
        let der = der(&f.paths.certificate(PEER));
        X509Certificate::from_der(&der).unwrap().1.validity().not_before.to_datetime()
    };
    assert_eq!(not_before(f.now), f.now - time::Duration::days(1));
    let later = f.now + time::Duration::hours(30);
    assert_eq!(not_before(later), later - time::Duration::days(1));
    assert_eq!(not_before(f.now - time::Duration::hours(12)), f.now - time::Duration::days(1));
}

#[test]
fn an_authority_that_was_not_finished_is_finished_or_made_again() {
    let f = fixture();
    let authority = Authority::create(&f.paths, f.now).unwrap();
    // Killed before the key took its place.
    let pending = f.paths.key("ca").with_extension("key.new");
    fs::rename(f.paths.key("ca"), &pending).unwrap();
    let again = Authority::load(&f.paths, f.now).unwrap().unwrap();
    assert_eq!(again.bundle_pem, authority.bundle_pem);
    // Killed before the certificate was there.
    fs::rename(f.paths.key("ca"), &pending).unwrap();
    fs::remove_file(f.paths.certificate("ca")).unwrap();
    assert!(Authority::load(&f.paths, f.now).unwrap().is_none());
    Authority::create(&f.paths, f.now).unwrap();
    assert!(!pending.exists());
}
