//! What the programs of a release are made of: `hack/sbom.sh` names every crate that is linked in, no other crate, and
//! the C library.

use crate::{output, repository};
use rstest::rstest;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// cargo's own graph of the workspace. It has the features of all members and their tests together, and so more crates
/// than a single program.
struct Graph {
    packages: BTreeMap<String, Value>,
    nodes: BTreeMap<String, Value>,
}

impl Graph {
    fn of_the_workspace(target: &str) -> Self {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--locked", "--format-version=1", "--filter-platform", target]);
        let graph: Value = serde_json::from_slice(&output(cargo.current_dir(repository("")))).unwrap();
        let by_id = |list: &Value| {
            let list = list.as_array().unwrap().iter();
            list.map(|entry| (entry["id"].as_str().unwrap().to_owned(), entry.clone())).collect()
        };
        Self { packages: by_id(&graph["packages"]), nodes: by_id(&graph["resolve"]["nodes"]) }
    }

    fn named(&self, name: &str) -> String {
        let found = self.packages.iter().find(|(_, package)| package["name"] == name);
        found.unwrap_or_else(|| panic!("there is no {name}")).0.clone()
    }

    fn is_a_macro(&self, id: &str) -> bool {
        list(&self.packages[id]["targets"]).iter().any(|target| list(&target["kind"]).contains(&"proc-macro".into()))
    }

    /// The packages that a package links in: all that are possible, or only those that it requires.
    fn links(&self, id: &str, required: bool) -> BTreeSet<String> {
        let kinds = |dependency: &Value| list(&dependency["dep_kinds"]).to_vec();
        let dependencies = list(&self.nodes[id]["deps"]).iter().filter(|dependency| {
            kinds(dependency).iter().filter(|kind| kind["kind"].is_null()).any(|kind| {
                let name = &self.packages[dependency["pkg"].as_str().unwrap()]["name"];
                !required || self.requires(id, name, &kind["target"])
            })
        });
        let ids = dependencies.map(|dependency| dependency["pkg"].as_str().unwrap().to_owned());
        ids.filter(|id| !self.is_a_macro(id)).collect()
    }

    fn requires(&self, id: &str, name: &Value, target: &Value) -> bool {
        list(&self.packages[id]["dependencies"]).iter().any(|dependency| {
            dependency["name"] == *name
                && dependency["kind"].is_null()
                && dependency["target"] == *target
                && dependency["optional"] == false
        })
    }

    /// Everything that could be linked into a program.
    fn reachable(&self, from: &str) -> BTreeSet<String> {
        let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(id) = open.pop() {
            if found.insert(id.clone()) {
                open.extend(self.links(&id, false));
            }
        }
        found
    }

    /// A package as the bill of materials names it.
    fn reference(&self, id: &str) -> String {
        let package = &self.packages[id];
        format!("{}@{}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap())
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The bill of materials for this computer's architecture. Another architecture needs a compiler that may not be
/// installed.
fn bill(program: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let mut script = Command::new(repository("hack/sbom.sh"));
    let text = output(script.args([program, architecture]).env("SOURCE_DATE_EPOCH", "1700000000"));
    serde_json::from_slice(&text).unwrap()
}

#[rstest]
#[case::manager("manager", &["kube-client", "rustls", "ring", "tokio", "etcd-client", "cluster-hooks"])]
#[case::etcdadm("etcdadm", &["rcgen", "rustls", "ring", "tokio", "tar", "zlib-rs"])]
#[case::kubectl_plugin("kubectl-etcdcluster", &["kube-client", "clap", "etcd-cluster-controller"])]
fn every_crate_that_is_linked_in_and_no_other(#[case] program: &str, #[case] some: &[&str]) {
    let bill = bill(program);
    let target = bill["metadata"]["properties"][0]["value"].as_str().unwrap();
    let graph = Graph::of_the_workspace(target);
    let references = list(&bill["components"]).iter().map(|component| component["bom-ref"].as_str().unwrap());
    let mut named: BTreeSet<&str> = references.collect();
    assert_eq!(named.len(), list(&bill["components"]).len(), "one is there twice");
    assert!(named.iter().any(|reference| reference.starts_with("rust-std@")));
    // The libraries below all crates.
    named.retain(|reference| !reference.starts_with("rust-std@") && !reference.starts_with("glibc@"));

    // The bill has nothing that only tests, macros or build scripts need.
    let root = graph.named(program);
    let reachable = graph.reachable(&root);
    let by_reference: BTreeMap<String, &String> = reachable.iter().map(|id| (graph.reference(id), id)).collect();
    let invented: Vec<_> = named.iter().filter(|reference| !by_reference.contains_key(**reference)).collect();
    assert!(invented.is_empty(), "not linked in: {invented:?}");

    // The bill has what its crates require. A few crates that are certainly linked in show that it has optional ones
    // too.
    for id in named.iter().map(|reference| by_reference[*reference]).chain([&root]) {
        for needed in graph.links(id, true) {
            let reference = graph.reference(&needed);
            assert!(named.contains(reference.as_str()), "{} needs {reference}", graph.reference(id));
        }
    }
    for name in some {
        assert!(named.iter().any(|reference| reference.starts_with(&format!("{name}@"))), "{name} is missing");
    }
}

/// It is that of this computer's compiler, according to the compiler's headers.
#[test]
fn the_c_library_of_the_manager_is_named() {
    let is_glibc = |component: &&Value| component["name"] == "glibc";
    let bill_of_manager = bill("manager");
    let glibc = list(&bill_of_manager["components"]).iter().find(is_glibc).expect("the manager has glibc in it");
    let version = glibc["version"].as_str().unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-E", "-dM", "-include", "features.h", "-x", "c", "/dev/null"]);
    let macros = String::from_utf8(output(&mut compiler)).unwrap();
    let number = |name: &str| macros.lines().find_map(|line| line.strip_prefix(name)).expect("a macro of glibc");
    assert_eq!(version, format!("{}.{}", number("#define __GLIBC__ "), number("#define __GLIBC_MINOR__ ")));
    // Distributions patch the library without changing its version. Its own description says which build it is.
    let said = glibc["description"].as_str().unwrap();
    assert!(said.starts_with("GNU C Library (") && said.ends_with(&format!(" version {version}")), "{said}");
    assert_eq!(glibc["cpe"], format!("cpe:2.3:a:gnu:glibc:{version}:*:*:*:*:*:*:*"));
    let root = &bill_of_manager["metadata"]["component"]["bom-ref"];
    let edge = list(&bill_of_manager["dependencies"]).iter().find(|edge| edge["ref"] == *root).unwrap();
    assert!(list(&edge["dependsOn"]).contains(&glibc["bom-ref"]), "{edge}");

    let bill_of_etcdadm = bill("etcdadm");
    assert!(!list(&bill_of_etcdadm["components"]).iter().any(|component| is_glibc(&component)), "it has musl");
}

#[test]
fn the_form_is_that_of_cyclone_dx() {
    let bill = bill("etcdadm");
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(bill["metadata"]["component"]["name"], "etcdadm");
    for component in list(&bill["components"]) {
        assert!(component["licenses"][0]["expression"].as_str().is_some_and(|text| !text.contains('/')), "{component}");
        // It comes from a registry and has a checksum, or it is ours or Rust's own.
        let checksum = component["hashes"][0]["content"].as_str();
        assert_eq!(checksum.is_some_and(|sum| sum.len() == 64), component["purl"].is_string(), "{component}");
        let name = component["name"].as_str().unwrap();
        assert!(component["purl"].is_string() || ["etcd-values", "rust-std"].contains(&name), "{component}");
    }
    let references = list(&bill["components"]).iter().chain([&bill["metadata"]["component"]]);
    let known: BTreeSet<&str> = references.filter_map(|component| component["bom-ref"].as_str()).collect();
    let edges = list(&bill["dependencies"]);
    assert_eq!(edges.iter().filter_map(|edge| edge["ref"].as_str()).collect::<BTreeSet<_>>(), known);
    let needed: BTreeSet<&str> =
        edges.iter().flat_map(|edge| list(&edge["dependsOn"])).filter_map(Value::as_str).collect();
    assert!(needed.is_subset(&known), "{:?}", needed.difference(&known));
}
