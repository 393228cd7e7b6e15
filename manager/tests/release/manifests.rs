//! A release has what clusterctl and kubectl need, and everything that a person can set is explained. The scenario
//! `clusterctl::whole_life` renders the files, and uses them with the real clusterctl.

use crate::{output, read, repository};
use clap::CommandFactory;
use manager::flags::Flags;
use serde_yaml::Value;
use std::collections::{BTreeMap, BTreeSet};
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
fn the_image_has_the_name_that_every_manifest_looks_for() {
    for file in ["default", "namespaced", "watch-filter"].map(|folder| format!("config/{folder}/kustomization.yaml")) {
        let image = &parse(&file)["images"][0];
        assert_eq!(image["newTag"], env!("CARGO_PKG_VERSION"), "{file}");
        let named = format!(" image={} ", image["newName"].as_str().unwrap());
        assert!(read("hack/release.sh").contains(&named), "{file}: hack/release.sh names it otherwise");
    }
}

/// The policy for clusterctl and the operator is that for kubectl, with the numbers of the ports. An address that is
/// set moves the metrics, but the Pod's port keeps its name and number: a name would only seem to follow.
#[test]
fn the_network_policy_names_the_default_ports() {
    let mut named = parse("config/manager/network_policy.yaml");
    let container = &parse("config/manager/manager.yaml")["spec"]["template"]["spec"]["containers"][0];
    for port in named["spec"]["ingress"][0]["ports"].as_sequence_mut().unwrap() {
        let mut ports = container["ports"].as_sequence().unwrap().iter();
        let there = ports.find(|there| there["name"] == port["port"]);
        port["port"] = there.expect("a port of this name")["containerPort"].clone();
    }
    let released = parse("config/release/network-policy.yaml");
    assert_eq!(released["spec"], named["spec"]);
    assert_eq!(released["metadata"]["name"], named["metadata"]["name"]);
    assert_eq!(released["metadata"]["namespace"], parse("config/default/kustomization.yaml")["namespace"]);
    let metrics = released["spec"]["ingress"][0]["ports"][1]["port"].as_u64().unwrap();
    let default = format!("${{CAPI_DIAGNOSTICS_ADDRESS:=:{metrics}}}");
    assert!(read(COMPONENTS).contains(&default), "without the variable, the metrics are at another port");
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

/// The files that `hack/release.sh --manifests` writes, with their content. Nothing is rendered: in place of a rendered
/// folder there is the command.
fn written() -> BTreeMap<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let mut script = Command::new(repository("hack/release.sh"));
    script.arg("--manifests").arg(directory.path()).env("KUBECTL", "echo").env("SOURCE_DATE_EPOCH", "1700000000");
    output(script.env_remove("SIGNING_KEY").env_remove("RELEASE_HOMEPAGE"));
    let files = std::fs::read_dir(directory.path()).unwrap().map(|file| {
        let file = file.unwrap();
        (file.file_name().into_string().unwrap(), std::fs::read_to_string(file.path()).unwrap())
    });
    files.collect()
}

#[test]
fn every_file_that_is_written_is_explained() {
    let files = written();
    assert!(files.contains_key("bootstrapprovider.yaml") && files.contains_key("metadata.yaml"), "{files:?}");
    let documentation = read("docs/install.md");
    let missing: Vec<_> = files.keys().filter(|name| !documentation.contains(&format!("\n| `{name}` |"))).collect();
    assert!(missing.is_empty(), "docs/install.md does not explain {missing:?}");
}

/// Whoever has a release needs no checkout: for kubectl, for monitoring and for people's rights, it has what the
/// folders have. No file for kubectl has a variable, which kubectl would not fill in.
#[test]
fn a_release_has_what_a_checkout_has() {
    let files = written();
    // All but this one.
    assert_eq!(files["SHA256SUMS"].lines().count(), files.len() - 1, "a file has no checksum");
    for (file, folder) in [
        ("install.yaml", "config/default"),
        ("install-before-kubernetes-1.36.yaml", "config/before-kubernetes-1.36"),
        ("aggregate-to-people.yaml", "config/aggregate-to-people"),
        ("prometheus.yaml", "config/prometheus"),
    ] {
        assert_eq!(files[file], format!("kustomize {folder}\n"));
    }
    for (file, source) in [
        ("network-policy.yaml", "config/release/network-policy.yaml"),
        ("kube-state-metrics.yaml", "config/kube-state-metrics/custom-resource-state.yaml"),
        ("grafana-dashboard.json", "config/grafana/etcdcluster.json"),
    ] {
        assert_eq!(files[file], read(source));
    }
    for folder in ["admission", "crd", "manager", "prometheus", "rbac", "rbac/people"] {
        let paths = std::fs::read_dir(repository("config").join(folder)).unwrap().map(|file| file.unwrap().path());
        for path in paths.filter(|path| path.is_file()) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(variables(&text).is_empty(), "{} has a variable", path.display());
        }
    }
}

/// What pages tell people to apply or import out of a release is in one.
#[test]
fn pages_name_only_files_that_are_written() {
    let (files, mut count) = (written(), 0);
    for page in ["README.md", "docs/install.md", "docs/examples.md", "docs/tasks/monitor.md"] {
        for path in read(page).split("out/release/").skip(1) {
            let name = path.split(|c: char| c.is_whitespace() || matches!(c, '`' | '\'' | ')')).next().unwrap();
            // Programs and images are not written here, and `*.yaml` is not a name.
            if !name.starts_with('*') && (name.ends_with(".yaml") || name.ends_with(".json")) {
                count += 1;
                assert!(files.contains_key(name), "{page}: a release has no {name}");
            }
        }
    }
    assert!(count > 4, "{count}");
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
