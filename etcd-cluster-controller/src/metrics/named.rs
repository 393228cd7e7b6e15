//! The series that alerts, the dashboard and the documentation name are the ones that exist.

use super::tests::{known, shown};
use super::{Decisions, Unreadable};
use crate::fixture::Story;
use crate::observation::probe::{OurFault, Outcome};
use crate::plan::Plan;
use crate::prober::ProbeMetrics;
use api::EtcdCluster;
use controller_support::Scope;
use controller_support::metrics::{ControllerLabels, ReconcileLabels, RequestLabels};
use kube::api::DynamicObject;
use kube::runtime::{reflector, watcher};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "etcdadm_provider_";
const RULES: &str = "config/prometheus/rules.yaml";
const TESTS: &str = "config/prometheus/tests/alerts.yaml";
const DASHBOARD: &str = "config/grafana/etcdcluster.json";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The text with every series that a manager can show.
fn everything() -> String {
    let (store, mut writer) = reflector::store::<EtcdCluster>();
    let mut story = Story::with_voters(3, 3);
    story.settle();
    writer.apply_watcher_event(&watcher::Event::Apply(story.etcd().clone()));
    let metrics = shown(store, Scope::default(), &known());
    let controller = "etcd-cluster-controller";
    metrics.reconciles.get_or_create(&ReconcileLabels { controller, result: "ok" }).inc();
    metrics.seconds.get_or_create(&ControllerLabels { controller }).observe(0.1);
    metrics.requests.get_or_create(&RequestLabels { controller, verb: "get", code: 200 }).inc();
    Decisions::new(&metrics).count("1", &Plan::Steady);
    Unreadable::new(&metrics, Scope::default()).note(&broken(), true);
    ProbeMetrics::new(&metrics).observe(&Outcome::OurFault(OurFault::FileDescriptors), Duration::from_secs(1));
    metrics.text().unwrap()
}

/// An EtcdCluster that cannot be read.
fn broken() -> DynamicObject {
    serde_json::from_value(serde_json::json!({"metadata": {"name": "broken", "namespace": "default"}})).unwrap()
}

/// Names of series.
fn exported() -> BTreeSet<String> {
    let text = everything();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples.filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())).collect()
}

/// The names of our series in a text.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter: char| !is_part(letter));
    words.filter(|word| word.len() > PREFIX.len() && word.starts_with(PREFIX)).map(str::to_owned).collect()
}

#[test]
fn alerts_and_the_dashboard_ask_for_series_that_exist() {
    let exported = exported();
    for file in [RULES, TESTS, DASHBOARD] {
        let named = named(&read(file));
        assert!(named.len() > 10, "{file}: {named:?}");
        let unknown: Vec<&String> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, and there is {exported:#?}");
    }
    let labels = [
        "namespace",
        "name",
        "alarm",
        "answer",
        "certificate",
        "condition",
        "reason",
        "controller",
        "result",
        "outcome",
    ];
    let text = everything();
    let unknown: Vec<&str> = labels.into_iter().filter(|label| !text.contains(&format!("{label}=\""))).collect();
    assert!(unknown.is_empty(), "no series has {unknown:?}");
}

#[test]
fn every_series_is_explained_and_no_other() {
    let documentation = named(&read("docs/metrics.md"));
    let family = |name: &String| {
        ["_bucket", "_count", "_sum"].into_iter().find_map(|end| name.strip_suffix(end)).map(str::to_owned)
    };
    let shown: BTreeSet<String> = exported().iter().map(|name| family(name).unwrap_or_else(|| name.clone())).collect();
    assert_eq!(documentation, shown);
}

#[test]
fn every_alert_is_tested_and_explained() {
    let values = |text: &str, key: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| Some(line.trim().trim_start_matches("- ").strip_prefix(key)?.trim().to_owned()))
            .collect()
    };
    let alerts = values(&read(RULES), "alert:");
    assert!(alerts.len() > 10, "{alerts:?}");
    assert_eq!(firing(&read(TESTS)), alerts);
    assert_eq!(values(&read("docs/alerts.md"), "### "), alerts);
}

/// The alerts that a test expects to fire. A test that expects none says `exp_alerts: []` after the name.
fn firing(tests: &str) -> BTreeSet<String> {
    let lines: Vec<&str> = tests.lines().map(|line| line.trim().trim_start_matches("- ")).collect();
    let fires = |pair: &&[&str]| pair[1] == "exp_alerts:";
    let named = lines.windows(2).filter(fires).filter_map(|pair| pair[0].strip_prefix("alertname: "));
    named.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_is_json_and_every_query_is_about_what_is_chosen() {
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(queries.len() > 15, "{queries:?}");
    let all = "etcdadm_provider_etcd_cluster_";
    for query in queries {
        let asked = query.matches(all).count();
        let chosen = query.matches("{namespace=~\"$namespace\", name=~\"$name\"").count();
        assert_eq!(asked, chosen, "{query}");
    }
    let mut ids = BTreeSet::new();
    assert!(panels.iter().all(|panel| ids.insert(panel["id"].as_u64().unwrap())), "a panel's number is there twice");
}
