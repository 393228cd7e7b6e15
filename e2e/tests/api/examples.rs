//! The files of `examples/`. A real API server accepts every document, with the CRDs and the webhooks of Cluster API
//! and its docker infrastructure, and with the CRDs of its OpenStack infrastructure. Also, the documents of a file
//! belong together.

use crate::server::try_create;
use anyhow::{Context, Result, ensure};
use api::conditions::MANAGED_EXTERNAL_ETCD_READY;
use api::names::MANAGED_ETCD_ANNOTATION;
use e2e::bed::crds;
use e2e::clusterctl::substituted;
use e2e::pages::blocks;
use e2e::plane::{AnotherManager, Plane, PlaneOptions};
use e2e::tools::{DockerProvider, OpenStackProvider};
use e2e::world::World;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// User of the docker infrastructure manager.
const CAPD: &str = "capd";
/// The template for any infrastructure, whose objects a person has to add.
const ANY: &str = "config/release/cluster-template.yaml";
/// A template of a release, and the example that it is a copy of.
const RELEASED: &str = "out/release/cluster-template-docker.yaml";
const TEMPLATE: &str = "examples/docker/cluster-template.yaml";
/// Kinds that no other document refers to: they refer to others, or select them.
const ROOTS: [&str; 3] = ["Cluster", "MachineDeployment", "MachineHealthCheck"];

/// A document of an example.
struct Document {
    /// The document as it is written. A decoder would lose what the server should refuse, such as a duplicate key.
    text: String,
    value: Value,
    kind: String,
    name: String,
}

pub(crate) async fn every_document_is_accepted(world: &World) -> Result<()> {
    let provider = DockerProvider::ensure(world.tools())?;
    let crds = [crds()?, OpenStackProvider::ensure(world.tools())?.crds].concat();
    let options = PlaneOptions { crds, users: vec![CAPD.to_owned()], ..PlaneOptions::default() };
    let mut plane = Plane::start(world, options).await?;
    // The manager connects to Docker only when it has something to do, and nothing is stored here.
    let capd = AnotherManager { user: CAPD, program: &provider.capd, manifests: &provider.manifests };
    let _capd = plane.start_another(world, &capd).await?;
    let client = plane.client();
    let mut refusals = Vec::new();
    let mut count = 0;
    let mut all = examples()?;
    all.push((ANY.to_owned(), documents(&repository(ANY))?));
    all.extend(changed_by_pages()?);
    for (file, documents) in all {
        for document in documents {
            count += 1;
            let name = format!("{file}: {} {}", document.kind, document.name);
            let answer = try_create(&client, &document.value, &document.text).await.with_context(|| name.clone())?;
            if let Err(refusal) = answer {
                refusals.push(format!("{name}: {refusal}"));
            }
        }
    }
    ensure!(refusals.is_empty(), "{}", refusals.join("\n"));
    ensure!(count > 50, "only {count} documents");
    plane.stop().await
}

pub(crate) fn the_documents_of_a_file_belong_together() -> Result<()> {
    for (file, documents) in examples()? {
        let mut referred = Vec::new();
        for document in &documents {
            references(&document.value["spec"], &mut referred);
            if let Some(etcd) = document.value["metadata"]["annotations"][MANAGED_ETCD_ANNOTATION].as_str() {
                referred.push(("EtcdCluster".to_owned(), etcd.to_owned()));
            }
        }
        for (kind, name) in &referred {
            let there = documents.iter().any(|document| document.kind == *kind && document.name == *name);
            ensure!(there, "{file}: there is no {kind} {name}");
        }
        for document in &documents {
            let Document { kind, name, .. } = document;
            let used = referred.iter().any(|referred| referred.0 == *kind && referred.1 == *name);
            ensure!(used || ROOTS.contains(&kind.as_str()), "{file}: nothing refers to {kind} {name}");
            let gate = document.value.pointer("/spec/availabilityGates/0/conditionType").and_then(Value::as_str);
            let tells = kind != "Cluster" || gate == Some(MANAGED_EXTERNAL_ETCD_READY);
            ensure!(tells, "{file}: Available of Cluster {name} does not tell of etcd");
            ensure!(kind != "KubeadmControlPlane" || ignores(document), "{file}: {name} may fail by one silent member");
        }
        ensure!(documents.iter().any(|document| document.kind == "Cluster"), "{file}: no Cluster");
    }
    Ok(())
}

/// Whether the first node and later ones tolerate that a single endpoint of etcd does not answer.
fn ignores(control_plane: &Document) -> bool {
    let spec = &control_plane.value["spec"]["kubeadmConfigSpec"];
    ["initConfiguration", "joinConfiguration"].iter().all(|configuration| {
        let ignored = spec[configuration]["nodeRegistration"]["ignorePreflightErrors"].as_array();
        ignored.is_some_and(|ignored| ignored.iter().any(|check| check == "ExternalEtcdVersion"))
    })
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The documents of every file, by its name.
fn examples() -> Result<Vec<(String, Vec<Document>)>> {
    let mut examples = Vec::new();
    let root = repository("examples");
    for directory in fs::read_dir(&root)? {
        for file in fs::read_dir(directory?.path())? {
            let path = file?.path();
            let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            examples.push((name.clone(), documents(&path).with_context(|| name)?));
        }
    }
    ensure!(examples.len() > 5, "only {} files", examples.len());
    examples.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(examples)
}

/// The examples as the pages change them with `sed` before they are applied, by the command. A computer with
/// Kubernetes' own node image skips no phase of kubeadm.
fn changed_by_pages() -> Result<Vec<(String, Vec<Document>)>> {
    let mut changed = Vec::new();
    for block in blocks()? {
        let page = &block.page;
        // Another `sed` changes the image of the manager.
        let is_applied = |command: &String| {
            command.starts_with("sed ") && command.contains("kubectl apply") && !command.contains("/install.yaml ")
        };
        for pipe in block.commands().iter().filter(|command| is_applied(command)) {
            let first = before_the_pipe(pipe).replace(RELEASED, TEMPLATE);
            let output =
                Command::new("sh").args(["-c", &first]).current_dir(repository("")).output().context("run sh")?;
            ensure!(output.status.success(), "{page}: {first}: {}", String::from_utf8_lossy(&output.stderr));
            let text = String::from_utf8(output.stdout)?;
            ensure!(!text.contains("skipPhases"), "{page}: {first}: phases of kubeadm are still skipped");
            ensure!(first.ends_with(TEMPLATE) || text.contains("kindest/node"), "{page}: {first}: no published image");
            changed.push((format!("{page}: {first}"), documents_of(&text)?));
        }
    }
    ensure!(changed.len() == 3, "the pages have {} such commands", changed.len());
    Ok(changed)
}

/// The first command of a pipe. `sed` has bars in quotes.
fn before_the_pipe(pipe: &str) -> &str {
    let mut quoted = false;
    let end = pipe.find(|c| {
        quoted ^= c == '\'';
        c == '|' && !quoted
    });
    pipe[..end.unwrap_or(pipe.len())].trim()
}

fn documents(path: &Path) -> Result<Vec<Document>> {
    documents_of(&fs::read_to_string(path)?)
}

fn documents_of(text: &str) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for text in substituted(text)?.split("\n---\n") {
        let value: Value = serde_yaml::from_str(text)?;
        // Anything before the first document is a comment.
        if !value.is_null() {
            let field = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (kind, name) = (field("/kind"), field("/metadata/name"));
            documents.push(Document { text: text.to_owned(), value, kind, name });
        }
    }
    Ok(documents)
}

/// Kind and name of everything that `value` refers to.
fn references(value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            found.extend(reference(fields));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => (),
    }
}

fn reference(fields: &Map<String, Value>) -> Option<(String, String)> {
    if let Some(cluster) = fields.get("clusterName") {
        return Some(("Cluster".to_owned(), cluster.as_str()?.to_owned()));
    }
    Some((fields.get("kind")?.as_str()?.to_owned(), fields.get("name")?.as_str()?.to_owned()))
}
