//! The images of a release: `hack/image.sh` follows the OCI image specification, and the same input always gives the
//! same image.

use crate::{output, repository};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const PROGRAM: &[u8] = b"a program";
/// When the image was made, in seconds since 1970.
const DATE: u64 = 1_700_000_000;
const REFERENCE: &str = "registry.example.org:5000/manager:0.1.0";

/// An image with a program of this content and mode, made in `directory`.
fn image(directory: &Path, content: &[u8], mode: u32) -> Vec<u8> {
    fs::create_dir_all(directory).unwrap();
    let (program, file) = (directory.join("manager"), directory.join("image.tar"));
    fs::write(&program, content).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
    let mut script = Command::new(repository("hack/image.sh"));
    script.arg(&program).args(["arm64", REFERENCE]).arg(&file).arg("65532:65532");
    output(script.env("SOURCE_DATE_EPOCH", DATE.to_string()));
    fs::read(file).unwrap()
}

/// The regular files of an archive.
fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.header().entry_type().is_file()).map(|mut entry| {
        assert_eq!(owner_and_date(entry.header()), (0, 0, DATE));
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    files.collect()
}

fn owner_and_date(header: &tar::Header) -> (u64, u64, u64) {
    (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap())
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The blob that a descriptor refers to. It has the size and the digest that the descriptor says.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
    let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).unwrap();
    let blob = &files[&format!("blobs/sha256/{digest}")];
    assert_eq!(descriptor["size"], blob.len(), "{descriptor}");
    assert_eq!(self::digest(blob), digest);
    blob
}

fn parsed(content: &[u8]) -> Value {
    serde_json::from_slice(content).unwrap()
}

#[test]
fn the_same_program_makes_the_same_image() {
    let directory = tempfile::tempdir().unwrap();
    let first = image(&directory.path().join("one"), PROGRAM, 0o755);
    assert!(first == image(&directory.path().join("two"), PROGRAM, 0o700), "another directory, date or mode is in it");
    assert!(first != image(&directory.path().join("three"), b"another", 0o755), "the program is not in it");
}

#[test]
fn an_image_is_read_from_its_index_to_the_program() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&image(directory.path(), PROGRAM, 0o644));
    assert_eq!(parsed(&files["oci-layout"]), json!({"imageLayoutVersion": "1.0.0"}));

    let index = parsed(&files["index.json"]);
    assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
    let described = &index["manifests"][0];
    assert_eq!(described["mediaType"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(described["platform"], json!({"architecture": "arm64", "os": "linux"}));
    assert_eq!(described["annotations"]["io.containerd.image.name"], REFERENCE);
    assert_eq!(described["annotations"]["org.opencontainers.image.ref.name"], "0.1.0");

    let manifest = parsed(blob(&files, described));
    assert_eq!((&manifest["schemaVersion"], &manifest["mediaType"]), (&json!(2), &described["mediaType"]));
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.oci.image.config.v1+json");
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    assert_eq!(manifest["layers"][0]["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip");

    let config = parsed(blob(&files, &manifest["config"]));
    assert_eq!(config["config"], json!({"User": "65532:65532", "Entrypoint": ["/manager"]}));
    assert_eq!((&config["architecture"], &config["os"]), (&json!("arm64"), &json!("linux")));
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");

    let mut layer = Vec::new();
    GzDecoder::new(blob(&files, &manifest["layers"][0])).read_to_end(&mut layer).unwrap();
    assert_eq!(config["rootfs"], json!({"type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))]}));
    let mut layer = tar::Archive::new(layer.as_slice());
    let mut entries = layer.entries().unwrap().map(Result::unwrap);
    let mut program = entries.next().unwrap();
    let mut content = Vec::new();
    program.read_to_end(&mut content).unwrap();
    assert_eq!((program.path().unwrap().as_ref(), content.as_slice()), (Path::new("manager"), PROGRAM));
    assert_eq!(program.header().mode().unwrap() & 0o7777, 0o755);
    assert_eq!(owner_and_date(program.header()), (0, 0, DATE));
    assert!(entries.next().is_none(), "something else is in the image");
}

/// For `docker load` with a Docker that does not read the OCI layout.
#[test]
fn docker_is_led_to_the_same_blobs() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&image(directory.path(), PROGRAM, 0o755));
    let manifest = parsed(blob(&files, &parsed(&files["index.json"])["manifests"][0]));
    let path = |descriptor: &Value| descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
    let expected = json!([{
        "Config": path(&manifest["config"]), "RepoTags": [REFERENCE], "Layers": [path(&manifest["layers"][0])],
    }]);
    assert_eq!(parsed(&files["manifest.json"]), expected);
}
