//! A release has what clusterctl needs, and everything that a person can set is explained. The scenario
//! `clusterctl::whole_life` renders the files, and uses them with the real clusterctl.

use crate::{output, read, repository};
use clap::CommandFactory;
use manager::flags::Flags;
use serde_yaml::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The templates of a release. Their documents have variables, which a YAML parser would not accept.
const TEMPLATES: [&str; 4] = [
    "config/release/cluster-template.yaml",
    "examples/docker/cluster-template.yaml",
    "examples/local/cluster-template.yaml",
    "examples/openstack/cluster-template.yaml",
];
const COMPONENTS: &str = "config/release/kustomization.yaml";

fn parse(name: &str) -> Value {
    serde_yaml::from_str(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The content of each `${...}` of a text.
fn variables(text: &str) -> Vec<&str> {
    text.split("${").skip(1).filter_map(|rest| rest.split('}').next()).collect()
}

fn name(variable: &str) -> &str {
    variable.split(':').next().unwrap_or_default()
}

#[test]
fn the_metadata_has_the_series_of_this_version() {
    let metadata = parse("metadata.yaml");
    let mut version = env!("CARGO_PKG_VERSION").split('.').map(|number| number.parse::<u64>().unwrap());
    let (major, minor) = (version.next(), version.next());
    let mut series = metadata["releaseSeries"].as_sequence().unwrap().iter();
    let ours = series.find(|series| series["major"].as_u64() == major && series["minor"].as_u64() == minor);
    assert_eq!(ours.expect("this version's series")["contract"], "v1beta2");
    assert_eq!(metadata["apiVersion"], "clusterctl.cluster.x-k8s.io/v1alpha3");
    assert_eq!(metadata["kind"], "Metadata");
}

#[test]
fn clusterctl_finds_every_crd_and_its_versions() {
    let list = parse("config/crd/kustomization.yaml");
    let files = list["resources"].as_sequence().unwrap();
    assert_eq!(files.len(), 3);
    for file in files {
        let file = format!("config/crd/{}", file.as_str().unwrap());
        let crd = parse(&file);
        let labels = &crd["metadata"]["labels"];
        assert_eq!(labels["cluster.x-k8s.io/provider"], "bootstrap-etcdadm", "{file}");
        assert_eq!(labels["clusterctl.cluster.x-k8s.io"], "", "{file}: clusterctl move would pass it over");
        assert_eq!(labels["visualizer.cluster.x-k8s.io"], "", "{file}: Cluster API's visualizer does not show it");
        let served = crd["spec"]["versions"].as_sequence().unwrap();
        let served: BTreeSet<&str> = served.iter().filter_map(|version| version["name"].as_str()).collect();
        for contract in ["cluster.x-k8s.io/v1beta1", "cluster.x-k8s.io/v1beta2"] {
            let versions: BTreeSet<&str> = labels[contract].as_str().expect(contract).split('_').collect();
            assert_eq!(versions, served, "{file}: {contract}");
        }
        // Cluster API names CRDs in this way, and looks for them by these names.
        let names = &crd["spec"]["names"];
        let plural = format!("{}s", names["kind"].as_str().unwrap().to_lowercase());
        assert_eq!(names["plural"], plural.as_str(), "{file}");
    }
}

#[test]
fn every_variable_is_explained_and_no_other() {
    let texts: Vec<String> = TEMPLATES.iter().chain([&COMPONENTS]).map(|file| read(file)).collect();
    let used: BTreeSet<&str> = texts.iter().flat_map(|text| variables(text)).map(name).collect();
    assert!(used.len() > 10, "{used:?}");
    let documentation = read("docs/install.md");
    let (_, tables) = documentation.split_once("Variables of `bootstrap-components.yaml`").unwrap();
    let (tables, _) = tables.split_once("\n## ").unwrap();
    let rows = tables.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<BTreeSet<&str>>(), used);
}

/// Without defaults, it could not be installed without further settings. clusterctl treats an empty default as none.
#[test]
fn every_variable_of_the_components_has_a_default() {
    let text = read(COMPONENTS);
    for variable in variables(&text) {
        let default = variable.split_once(":=").map(|(_, default)| default);
        assert!(default.is_some_and(|default| !default.is_empty()), "{variable}");
    }
}

#[test]
fn the_templates_agree() {
    let texts: Vec<String> = TEMPLATES.iter().map(|file| read(file)).collect();
    let all: BTreeSet<&str> =
        texts.iter().flat_map(|text| variables(text)).filter(|text| text.contains(":=")).collect();
    for variable in &all {
        let same = all.iter().filter(|other| name(other) == name(variable)).count();
        assert_eq!(same, 1, "{variable} has another default somewhere");
    }
    for (file, text) in TEMPLATES.iter().zip(&texts) {
        assert!(text.contains(api::names::PLACEHOLDER_ENDPOINT), "{file} has another placeholder");
        assert_eq!(text.matches("ignorePreflightErrors: [ExternalEtcdVersion]").count(), 2, "{file}");
        assert_eq!(text.matches("conditionType: ManagedExternalEtcdReady").count(), 1, "{file}");
    }
}

/// This way, an image of a release runs as soon as it is loaded, without a registry.
#[test]
fn the_image_has_the_name_that_the_components_look_for() {
    let (released, installed) = (parse(COMPONENTS), parse("config/default/kustomization.yaml"));
    let (released, installed) = (&released["images"][0], &installed["images"][0]);
    assert_eq!(released["name"], installed["newName"]);
    assert_eq!(installed["newTag"], env!("CARGO_PKG_VERSION"));
    let script = read("hack/release.sh");
    let named = format!(" image={} ", released["newName"].as_str().unwrap());
    assert!(script.contains(&named), "hack/release.sh names it otherwise");
}

#[test]
fn the_operators_sample_is_for_this_version() {
    let provider = parse("config/operator/bootstrapprovider.yaml");
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(provider["kind"], "BootstrapProvider");
    assert_eq!(provider["spec"]["version"], version.as_str());
    let container = &provider["spec"]["deployment"]["containers"][0];
    assert_eq!(
        container["name"],
        parse("config/manager/manager.yaml")["spec"]["template"]["spec"]["containers"][0]["name"]
    );
    let image = container["imageUrl"].as_str().unwrap();
    assert!(image.ends_with(&format!("/cluster-api-provider-etcdadm:{}", env!("CARGO_PKG_VERSION"))), "{image}");
    // What docs/install.md tells people to do, as far as the sample depends on it.
    let documentation = read("docs/install.md");
    let (namespace, label) =
        (&provider["metadata"]["namespace"], &provider["spec"]["fetchConfig"]["selector"]["matchLabels"]);
    let namespace = namespace.as_str().unwrap();
    let label = format!("provider-components={}", label["provider-components"].as_str().unwrap());
    assert!(documentation.contains(&format!("kubectl -n {namespace} label configmap {version} {label}")));
}

/// Nothing is rendered here: only the names of the files matter.
#[test]
fn every_file_that_is_written_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let mut script = Command::new(repository("hack/release.sh"));
    script.arg("--manifests").arg(directory.path()).env("KUBECTL", "echo").env("SOURCE_DATE_EPOCH", "1700000000");
    output(script.env_remove("SIGNING_KEY").env_remove("RELEASE_HOMEPAGE"));
    let files = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
    let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
    assert!(files.contains("bootstrapprovider.yaml") && files.contains("metadata.yaml"), "{files:?}");
    let documentation = read("docs/install.md");
    let missing: Vec<_> = files.iter().filter(|name| !documentation.contains(&format!("\n| `{name}` |"))).collect();
    assert!(missing.is_empty(), "docs/install.md does not explain {missing:?}");
}

#[test]
fn the_manager_understands_what_the_documentation_has_people_run() {
    let pages = ["README.md", "CONTRIBUTING.md", "docs/install.md", "docs/troubleshooting.md"].map(read);
    let blocks = pages.iter().flat_map(|page| page.split("```").skip(1).step_by(2)).flat_map(str::lines);
    let lines: Vec<&str> = blocks.filter(|line| line.trim().starts_with("target/debug/manager ")).collect();
    assert!(!lines.is_empty());
    for line in lines {
        Flags::from_arguments(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn every_flag_is_explained() {
    let documentation = read("docs/install.md");
    let command = Flags::command();
    let flags: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    assert!(flags.len() > 40, "{flags:?}");
    let missing: Vec<&&str> = flags.iter().filter(|flag| !documentation.contains(&format!("`--{flag}`"))).collect();
    assert!(missing.is_empty(), "docs/install.md does not explain {missing:?}");
}
