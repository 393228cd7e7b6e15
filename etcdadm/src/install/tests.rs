use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;
use crate::settings::tests::example;

/// An archive whose programs are scripts that answer `--version`.
fn archive(folder: &str, version: &str, programs: &[&str]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for name in [&["README.md"], programs].concat() {
        let content = format!("#!/bin/sh\necho '{name} Version: {version}'\n");
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        // Writes the name as it is: the library would remove a leading `./`, which `tar` writes.
        let path = format!("{folder}/{name}");
        header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        tar.append(&header, content.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

struct Fixture {
    root: TempDir,
    paths: Paths,
    settings: Settings,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut settings = example();
        settings.release_url = "http://127.0.0.1:1/etcd".to_owned();
        let paths = settings.paths(root.path());
        Self { root, paths, settings }
    }

    fn cache(&self, version: &str, content: &[u8]) {
        let name = format!("etcd-v{version}-linux-{}.tar.gz", release::go_arch().unwrap());
        files::write(&self.paths.release_cache(version).join(name), content, 0o644).unwrap();
    }

    fn cache_good(&self, version: &str) {
        let folder = format!("etcd-v{version}-linux-{}", release::go_arch().unwrap());
        self.cache(version, &archive(&folder, version, &PROGRAMS));
    }

    fn program(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join("opt/bin").join(name)
    }
}

#[tokio::test]
async fn installs_all_programs_and_only_them() {
    let f = Fixture::new();
    f.cache_good("3.6.16");
    ensure_installed(&f.paths, &f.settings, false).await.unwrap();
    let bin = f.program("");
    let mut there: Vec<String> =
        std::fs::read_dir(&bin).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    there.sort();
    assert_eq!(there, PROGRAMS);
    for name in PROGRAMS {
        assert_eq!(std::fs::metadata(f.program(name)).unwrap().permissions().mode() & 0o7777, 0o755);
    }
}

#[tokio::test]
async fn what_is_right_is_left_and_what_is_not_is_replaced() {
    let f = Fixture::new();
    f.cache_good("3.6.16");
    ensure_installed(&f.paths, &f.settings, false).await.unwrap();
    let modified = |name: &str| std::fs::metadata(f.program(name)).unwrap().modified().unwrap();
    let before = modified("etcd");
    ensure_installed(&f.paths, &f.settings, false).await.unwrap();
    assert_eq!(modified("etcd"), before);

    std::fs::write(f.program("etcdctl"), "something else").unwrap();
    ensure_installed(&f.paths, &f.settings, false).await.unwrap();
    assert!(std::fs::read_to_string(f.program("etcdctl")).unwrap().contains("etcdctl Version"));

    let mut other = f.settings.clone();
    other.version = "3.6.11".parse().unwrap();
    f.cache_good("3.6.11");
    ensure_installed(&f.paths, &other, false).await.unwrap();
    assert!(std::fs::read_to_string(f.program("etcd")).unwrap().contains("3.6.11"));
}

#[tokio::test]
async fn a_members_version_is_not_changed() {
    let f = Fixture::new();
    f.cache_good("3.6.16");
    ensure_installed(&f.paths, &f.settings, false).await.unwrap();
    let mut other = f.settings.clone();
    other.version = "3.7.3".parse().unwrap();
    f.cache_good("3.7.3");
    let message = ensure_installed(&f.paths, &other, true).await.unwrap_err().to_string();
    assert!(message.contains("a member with etcd 3.6.16"), "{message}");
}

/// Machines of another tool, and machine images with etcd, have no install.json.
#[tokio::test]
async fn a_members_program_is_never_replaced_whoever_put_it_there() {
    let f = Fixture::new();
    f.cache_good("3.6.16");
    let program = b"#!/bin/sh\necho 'etcd Version: 3.5.21'\n";
    files::write(&f.program("etcd"), program, 0o755).unwrap();
    let message = ensure_installed(&f.paths, &f.settings, true).await.unwrap_err().to_string();
    assert!(message.contains("a member with etcd 3.5.21"), "{message}");
    let mut same = f.settings.clone();
    same.version = "3.5.21".parse().unwrap();
    ensure_installed(&f.paths, &same, true).await.unwrap();
    assert_eq!(std::fs::read(f.program("etcd")).unwrap(), program);
    assert!(!f.paths.install_record().exists());
}

#[tokio::test]
async fn programs_of_the_machines_image_do_if_they_are_the_wanted_version() {
    let f = Fixture::new();
    for name in REQUIRED {
        let content = format!("#!/bin/sh\necho '{name} Version: 3.6.16'\n");
        files::write(&f.program(name), content.as_bytes(), 0o755).unwrap();
    }
    ensure_installed(&f.paths, &f.settings, false).await.unwrap();

    let mut other = f.settings.clone();
    other.version = "3.6.11".parse().unwrap();
    f.cache_good("3.6.11");
    ensure_installed(&f.paths, &other, false).await.unwrap();
    assert!(std::fs::read_to_string(f.program("etcd")).unwrap().contains("3.6.11"));
}

#[tokio::test]
async fn the_folder_in_the_archive_may_name_the_machine_alone() {
    for prefix in ["", "./"] {
        let f = Fixture::new();
        let folder = format!("{prefix}linux-{}", release::go_arch().unwrap());
        f.cache("3.6.16", &archive(&folder, "3.6.16", &PROGRAMS));
        ensure_installed(&f.paths, &f.settings, false).await.unwrap();
        assert!(std::fs::read_to_string(f.program("etcd")).unwrap().contains("3.6.16"));
        assert!(f.paths.install_record().exists());
    }
}

/// If it were recorded as the requested version, the member would keep it for life.
#[tokio::test]
async fn an_archive_of_another_version_is_not_installed() {
    let f = Fixture::new();
    let folder = format!("linux-{}", release::go_arch().unwrap());
    f.cache("3.6.16", &archive(&folder, "3.6.11", &PROGRAMS));
    let message = format!("{:#}", ensure_installed(&f.paths, &f.settings, false).await.unwrap_err());
    assert!(message.contains("it has etcd 3.6.11, not etcd 3.6.16"), "{message}");
    assert!(PROGRAMS.iter().all(|name| !f.program(name).exists()));
    assert!(!f.paths.install_record().exists());
}

#[tokio::test]
async fn a_bad_archive_installs_nothing() {
    let good = archive(&format!("etcd-v3.6.16-linux-{}", release::go_arch().unwrap()), "3.6.16", &PROGRAMS);
    let truncated = good[..good.len() / 2].to_vec();
    let other_machine = archive("etcd-v3.6.16-linux-mips", "3.6.16", &PROGRAMS);
    let folder = format!("etcd-v3.6.16-linux-{}", release::go_arch().unwrap());
    let incomplete = archive(&folder, "3.6.16", &["etcd"]);
    for bad in [b"no archive".to_vec(), truncated, other_machine, incomplete] {
        let f = Fixture::new();
        f.cache("3.6.16", &bad);
        let message = format!("{:#}", ensure_installed(&f.paths, &f.settings, false).await.unwrap_err());
        assert!(message.contains("cannot unpack"), "{message}");
        assert!(!f.program("etcd").exists());
        assert!(!Path::new(&f.paths.install_record()).exists());
    }
}
