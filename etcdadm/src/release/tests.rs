use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::*;
use crate::settings::tests::example;

const CONTENT: &[u8] = b"what a release archive holds";

fn sum() -> Sha256 {
    Sha256::of(&mut &*CONTENT).unwrap()
}

struct Fixture {
    root: TempDir,
    paths: Paths,
    settings: Settings,
    archive: PathBuf,
    name: String,
}

fn fixture() -> Fixture {
    let root = tempfile::tempdir().unwrap();
    let mut settings = example();
    // No server answers there, so an archive that is not in the cache is an error.
    settings.release_url = "http://127.0.0.1:1/etcd".to_owned();
    let paths = settings.paths(root.path());
    let name = format!("{}.tar.gz", folder(&settings.version).unwrap());
    let archive = paths.release_cache(&settings.version.to_string()).join(&name);
    Fixture { root, paths, settings, archive, name }
}

/// A release server on loopback that answers each path with a status and a body.
fn serve(answer: impl Fn(&str) -> (u16, Vec<u8>) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/etcd", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            std::thread::spawn(move || respond(stream, &*answer));
        }
    });
    url
}

fn respond(mut stream: TcpStream, answer: &dyn Fn(&str) -> (u16, Vec<u8>)) {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let (status, body) = answer(request.split(' ').nth(1).unwrap_or_default());
    let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

async fn obtain(f: &Fixture) -> Result<Archive> {
    crate::set_up_tls();
    super::obtain(&f.paths, &f.settings).await
}

#[tokio::test]
async fn the_cache_is_enough_without_a_network() {
    let f = fixture();
    files::write(&f.archive, CONTENT, 0o644).unwrap();
    assert_eq!(obtain(&f).await.unwrap().sha256, sum());
    for sums in [format!("{}  {}\n", sum(), f.name), format!("{}\n", sum())] {
        files::write(&f.archive.with_file_name(format!("{}.sha256", f.name)), sums.as_bytes(), 0o644).unwrap();
        assert_eq!(obtain(&f).await.unwrap().path, f.archive);
    }
}

/// Runs the script that fills machine images on the fixture's root, with a release and a mirror of etcd's releases.
/// `sum` is the archive's sum that the mirror publishes.
fn fill_image(f: &Fixture, sum: Sha256) -> std::process::Output {
    let folder = f.root.path().join("given");
    let version = f.settings.version.to_string();
    let mirror = folder.join(format!("v{version}"));
    std::fs::create_dir_all(&mirror).unwrap();
    std::fs::write(mirror.join(&f.name), CONTENT).unwrap();
    std::fs::write(mirror.join(SUMS), format!("{}  another\n{sum}  {}\n", "0".repeat(64), f.name)).unwrap();
    let (arch, program) = (go_arch().unwrap(), format!("etcdadm-linux-{}", go_arch().unwrap()));
    std::fs::write(folder.join(&program), CONTENT).unwrap();
    std::fs::write(folder.join(SUMS), format!("{}  {program}\n", self::sum())).unwrap();
    let mut script = std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/machine-image.sh"));
    script.arg(&folder).args([arch, &version]).env("ROOT", f.root.path());
    script.env("ETCD_RELEASES", format!("file://{}", folder.display())).output().unwrap()
}

#[tokio::test]
async fn what_a_machine_image_is_given_is_found_and_checked() {
    let f = fixture();
    let out = fill_image(&f, sum());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(obtain(&f).await.unwrap().path, f.archive);
    assert_eq!(std::fs::read(f.root.path().join("usr/local/bin/etcdadm")).unwrap(), CONTENT);
    // The script has copied the checksum too.
    std::fs::write(&f.archive, b"changed").unwrap();
    assert!(obtain(&f).await.is_err());
}

#[test]
fn a_machine_image_is_given_nothing_that_is_not_what_it_should_be() {
    let f = fixture();
    let out = fill_image(&f, Sha256::of(&mut &b"another"[..]).unwrap());
    assert!(!out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("is not what SHA256SUMS says"));
    assert!(!f.archive.exists());
}

#[tokio::test]
async fn a_download_is_checked_cached_and_not_repeated() {
    let mut f = fixture();
    let requests = Arc::new(AtomicU32::new(0));
    let (counted, name) = (Arc::clone(&requests), f.name.clone());
    f.settings.release_url = serve(move |path| {
        counted.fetch_add(1, Ordering::SeqCst);
        match path {
            "/etcd/v3.6.16/SHA256SUMS" => (200, format!("{}  {name}\n", sum()).into_bytes()),
            path if path == format!("/etcd/v3.6.16/{name}") => (200, CONTENT.to_vec()),
            _ => (404, Vec::new()),
        }
    });
    assert_eq!(obtain(&f).await.unwrap().sha256, sum());
    assert_eq!(std::fs::read(&f.archive).unwrap(), CONTENT);
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    obtain(&f).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 2, "the cache answers");
    assert_eq!(std::fs::read_dir(f.archive.parent().unwrap()).unwrap().count(), 2, "the archive and its sum only");

    std::fs::write(&f.archive, b"damaged").unwrap();
    obtain(&f).await.unwrap();
    assert_eq!(std::fs::read(&f.archive).unwrap(), CONTENT, "a damaged archive is fetched again");
}

/// Other builds do not use upstream's names.
#[rstest::rstest]
#[case::its_own_sum("/etcd-linux-amd64-v3.6.16.tar.gz.sha256", "?signed=yes")]
#[case::the_sums_beside_it("/SHA256SUMS", "")]
#[tokio::test]
async fn the_release_url_may_be_that_of_an_archive(#[case] sums: &'static str, #[case] query: &'static str) {
    let mut f = fixture();
    let requests = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&requests);
    let name = "etcd-linux-amd64-v3.6.16.tar.gz";
    let url = serve(move |path| {
        counted.fetch_add(1, Ordering::SeqCst);
        let Some(path) = path.strip_suffix(query) else { return (403, Vec::new()) };
        match path.strip_prefix("/etcd/files").unwrap_or_default() {
            "/etcd-linux-amd64-v3.6.16.tar.gz" => (200, CONTENT.to_vec()),
            path if path == sums => (200, format!("{}  /build/{name}\n", sum()).into_bytes()),
            _ => (404, Vec::new()),
        }
    });
    f.settings.release_url = format!("{url}/files/{name}{query}");
    let obtained = obtain(&f).await.unwrap();
    assert_eq!((obtained.path.as_path(), obtained.sha256), (f.archive.with_file_name(name).as_path(), sum()));
    let asked = requests.load(Ordering::SeqCst);
    obtain(&f).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), asked, "the cache answers");

    // An archive that the machine image has under upstream's name is accepted too.
    std::fs::remove_file(obtained.path).unwrap();
    files::write(&f.archive, CONTENT, 0o644).unwrap();
    assert_eq!(obtain(&f).await.unwrap().path, f.archive);
    assert_eq!(requests.load(Ordering::SeqCst), asked);
}

#[tokio::test]
async fn an_archive_without_a_checksum_names_both_places_for_one() {
    let mut f = fixture();
    f.settings.release_url = format!(
        "{}/a.tar.gz",
        serve(|path| if path.ends_with("a.tar.gz") { (200, CONTENT.into()) } else { (404, Vec::new()) })
    );
    let message = format!("{:#}", obtain(&f).await.unwrap_err());
    for named in ["--release-sha256", "/etcd/a.tar.gz.sha256", "/etcd/SHA256SUMS"] {
        assert!(message.contains(named), "{message}");
    }
    assert!(!f.archive.with_file_name("a.tar.gz").exists());
}

#[tokio::test]
async fn a_download_that_is_not_what_it_should_be_is_never_seen() {
    let mut f = fixture();
    f.settings.release_url = serve(|_| (200, b"something else".to_vec()));
    f.settings.release_sha256 = Some(sum());
    let message = format!("{:#}", obtain(&f).await.unwrap_err());
    assert!(message.contains(&sum().to_string()), "{message}");
    assert!(!f.archive.exists());
}

#[tokio::test]
async fn no_checksum_no_download() {
    let mut f = fixture();
    f.settings.release_url =
        serve(|path| if path.ends_with("SHA256SUMS") { (404, Vec::new()) } else { (200, CONTENT.into()) });
    let message = format!("{:#}", obtain(&f).await.unwrap_err());
    assert!(message.contains("--release-sha256"), "{message}");
    assert!(!f.archive.exists());
    f.settings.release_sha256 = Some(sum());
    obtain(&f).await.unwrap();
}

#[tokio::test]
async fn a_server_that_hiccups_is_asked_again() {
    let mut f = fixture();
    let requests = AtomicU32::new(0);
    f.settings.release_url =
        serve(
            move |_| {
                if requests.fetch_add(1, Ordering::SeqCst) < 2 { (503, Vec::new()) } else { (200, CONTENT.into()) }
            },
        );
    f.settings.release_sha256 = Some(sum());
    obtain(&f).await.unwrap();
}

#[tokio::test]
async fn an_unreachable_server_is_named_with_what_to_do() {
    let f = fixture();
    let message = format!("{:#}", obtain(&f).await.unwrap_err());
    for named in ["http://127.0.0.1:1/etcd/v3.6.16/", "--release-url", "/var/cache/etcdadm/etcd/v3.6.16/"] {
        assert!(message.contains(named), "{message}");
    }
}

/// Every message about a download names its URL.
#[tokio::test]
async fn a_failed_download_does_not_tell_the_password() {
    let mut f = fixture();
    f.settings.release_url = "http://user:secret@127.0.0.1:1/etcd".to_owned();
    for given in [None, Some(sum())] {
        f.settings.release_sha256 = given;
        let message = format!("{:#}", obtain(&f).await.unwrap_err());
        assert!(message.contains("http://127.0.0.1:1/etcd/"), "{message}");
        assert!(!message.contains("user") && !message.contains("secret"), "{message}");
    }
}
