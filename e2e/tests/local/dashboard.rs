//! The dashboard of `config/grafana`, fed with the metrics of a real manager while a cluster comes up. Prometheus
//! itself judges whether a panel has anything to show, and a page is drawn from its answers, for people to look at.

use crate::bring_up::PATIENCE;
use anyhow::{Context, Result, ensure};
use e2e::bed::{Bed, ClusterHandle, Manifests};
use e2e::dashboard::{ask, page};
use e2e::tools::Promtool;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const DASHBOARD: &str = include_str!("../../../config/grafana/etcdcluster.json");
/// Time between two scrapes of the manager. To Prometheus it is [`INTERVAL`] seconds, because a rate over minutes needs
/// several minutes.
const EVERY: Duration = Duration::from_secs(1);
const INTERVAL: usize = 15;
/// How many scrapes follow once the cluster is Ready.
const AFTERWARDS: usize = 5;

/// Every query of every panel has an answer at some time between the first apply and a Ready cluster.
pub(crate) async fn has_something_to_show(bed: &mut Bed) -> Result<()> {
    let queries = queries()?;
    let begun = now();
    let scraped = scraped(bed).await?;
    let tests = tests(&queries, &scraped).to_string();
    // A counter-check with queries for metrics that do not exist: a test that cannot fail tests nothing.
    let others: Vec<String> = queries.iter().map(|query| query.replace("etcdadm_provider_", "another_")).collect();
    let unfed = others.iter().find(|query| !query.contains("vector(0)")).context("a query without a default")?;
    let never = tests_of(unfed, &scraped);
    println!("  {} queries, answered from {} answers of the manager", queries.len(), scraped.len());
    tokio::task::spawn_blocking(move || {
        // promtool requires rules, and these tests are about none.
        let rules = json!({"groups": [{"name": "none", "rules": [{"record": "none", "expr": "vector(0)"}]}]});
        let promtool = Promtool::ensure()?;
        promtool.check(&rules)?;
        promtool.test(&rules, &tests).context("a panel has nothing to show")?;
        ensure!(promtool.test(&rules, &never).is_err(), "promtool does not notice a panel with nothing to show");
        draw(&promtool, &queries, &from(&scraped, begun))
    })
    .await?
}

/// Draws the answers to each query, as a page in target/tmp, and writes the answers beside it. hack/pictures.sh takes a
/// picture of the page.
fn draw(promtool: &Promtool, queries: &[String], scraped: &[String]) -> Result<()> {
    let answers = ask(promtool, &series(scraped), queries, scraped.len())?;
    let all: Vec<Value> =
        queries.iter().zip(&answers).map(|(query, answer)| json!({"query": query, "answer": answer})).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let page = page(&dashboard, &answers);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    fs::write(folder.join("answers.json"), serde_json::to_string_pretty(&all)?).context("write the answers")?;
    fs::write(folder.join("page.html"), page).context("write the page")?;
    println!("  drawn: {}", folder.join("page.html").display());
    let silent: Vec<&String> = queries.iter().zip(&answers).filter(|(_, it)| it.is_empty()).map(|(it, _)| it).collect();
    ensure!(silent.is_empty(), "not drawn, as they have no answer: {silent:?}");
    Ok(())
}

/// The same metrics, with times that count from `begun`, because promtool's clock begins at 0.
fn from(scraped: &[String], begun: f64) -> Vec<String> {
    let line = |line: &str| match line.rsplit_once(' ').map(|(name, value)| (name, value.parse::<f64>())) {
        Some((name, Ok(time))) if name.contains("_timestamp_seconds{") => format!("{name} {}\n", time - begun),
        _ => format!("{line}\n"),
    };
    scraped.iter().map(|text| text.lines().map(line).collect()).collect()
}

#[expect(clippy::disallowed_methods, reason = "the manager's metrics have times of the clock")]
fn now() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}

/// The queries of the panels, for all namespaces and names.
fn queries() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| target["expr"].as_str().context("a target without a query"));
    let queries: Vec<&str> = queries.collect::<Result<_>>()?;
    ensure!(queries.len() > 20, "{queries:?}");
    Ok(queries.iter().map(|query| query.replace("$namespace", ".*").replace("$name", ".*")).collect())
}

/// The manager's metrics, scraped again and again while a cluster comes up.
async fn scraped(bed: &Bed) -> Result<Vec<String>> {
    let client = bed.client();
    ClusterHandle::make_namespace(&client, "dashboard").await?;
    let manifests = Manifests::new("dashboard", "demo")?;
    manifests.apply(&client).await?;
    let handle = ClusterHandle::new(&client, &manifests);
    let begun = Instant::now();
    let (mut scraped, mut afterwards) = (Vec::new(), 0);
    while afterwards < AFTERWARDS {
        scraped.push(bed.admin(0, "/metrics").await?);
        let status = handle.status().await?;
        ensure!(begun.elapsed() < PATIENCE, "{} is not ready: {:?}", handle.etcd, status.conditions);
        afterwards += usize::from(status.ready);
        tokio::time::sleep(EVERY).await;
    }
    Ok(scraped)
}

/// promtool's input: the values of each series, one for each scrape. As in Prometheus, a series that a scrape does not
/// have any more ends there.
fn series(scraped: &[String]) -> Vec<Value> {
    fn fill(values: &mut Vec<&str>, until: usize) {
        if !values.is_empty() && values.len() < until {
            values.push("stale");
        }
        values.resize(until, "_");
    }
    let mut series: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (time, text) in scraped.iter().enumerate() {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (name, value) in lines.filter_map(|line| line.rsplit_once(' ')) {
            let values = series.entry(name).or_default();
            fill(values, time);
            values.push(value);
        }
    }
    series.values_mut().for_each(|values| fill(values, scraped.len()));
    series.iter().map(|(name, values)| json!({"series": name, "values": values.join(" ")})).collect()
}

/// promtool's file: the input, and for each query the expectation that it has an answer at least once.
fn tests(queries: &[String], scraped: &[String]) -> Value {
    let end = format!("{}s", scraped.len() * INTERVAL);
    let answered = |query: &String| {
        let answers = format!("count_over_time((count({query}))[{end}:{INTERVAL}s]) > bool 0");
        json!({"expr": answers, "eval_time": end, "exp_samples": [{"labels": "{}", "value": 1}]})
    };
    let expected: Vec<Value> = queries.iter().map(answered).collect();
    json!({"tests": [{
        "interval": format!("{INTERVAL}s"), "input_series": series(scraped), "promql_expr_test": expected,
    }]})
}

/// The same for one query.
fn tests_of(query: &str, scraped: &[String]) -> String {
    tests(&[query.to_owned()], scraped).to_string()
}
