//! Every field that `config/kube-state-metrics` reads from our kinds exists.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_yaml::Value;
use std::path::Path;

const FILE: &str = "config/kube-state-metrics/custom-resource-state.yaml";

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_sequence().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Every path below `value`: those of the metrics, and those of the labels.
fn paths<'a>(value: &'a Value, from: &[&'a str], found: &mut Vec<Vec<&'a str>>) {
    let each = &value["each"];
    let kind = ["gauge", "info", "stateSet"].into_iter().find(|kind| !each[*kind].is_null());
    let each = &each[kind.expect("a gauge, an info or a stateSet")];
    let at: Vec<&str> = from.iter().copied().chain(texts(&each["path"])).collect();
    let below = |further: &'a Value| at.iter().copied().chain(texts(further)).collect::<Vec<&str>>();
    found.push(at.clone());
    found.extend(each["labelsFromPath"].as_mapping().into_iter().flatten().map(|(_, path)| below(path)));
    if !each["valueFrom"].is_null() {
        found.push(below(&each["valueFrom"]));
    }
}

/// Whether a kind's schema has such a field. No schema has the API server's own metadata.
fn is_there(crd: &CustomResourceDefinition, version: &str, path: &[&str]) -> bool {
    if matches!(path, [] | ["metadata", ..]) {
        return true;
    }
    let crd = serde_json::to_value(crd).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|found| found["name"] == version).expect("the version is served");
    let mut schema = &version["schema"]["openAPIV3Schema"];
    for field in path {
        schema = if schema["items"].is_object() { &schema["items"] } else { schema };
        schema = &schema["properties"][field];
    }
    schema.is_object()
}

#[test]
fn every_path_is_a_field() {
    let config: Value = serde_yaml::from_str(&read(FILE)).unwrap();
    let mut count = 0;
    for resource in config["spec"]["resources"].as_sequence().unwrap() {
        let of = &resource["groupVersionKind"];
        let text = |name: &str| of[name].as_str().unwrap();
        let crds = api::crds::all();
        let crd = crds.iter().find(|crd| crd.spec.names.kind == text("kind")).expect("a kind of ours");
        assert_eq!(crd.spec.group, text("group"));
        let mut found: Vec<Vec<&str>> = Vec::new();
        for metric in resource["metrics"].as_sequence().unwrap() {
            paths(metric, &[], &mut found);
        }
        for path in &found {
            assert!(is_there(crd, text("version"), path), "{} has no {}", text("kind"), path.join("."));
        }
        count += found.len();
        assert!(!is_there(crd, text("version"), &["status", "nothing"]));
    }
    assert!(count > 15, "{count}");
}

#[test]
fn every_metric_is_explained() {
    let page = read("docs/metrics.md");
    let config: Value = serde_yaml::from_str(&read(FILE)).unwrap();
    for resource in config["spec"]["resources"].as_sequence().unwrap() {
        for metric in resource["metrics"].as_sequence().unwrap() {
            let name =
                format!("{}_{}", resource["metricNamePrefix"].as_str().unwrap(), metric["name"].as_str().unwrap());
            assert!(page.contains(&format!("`{name}`")), "docs/metrics.md does not explain {name}");
        }
    }
}
