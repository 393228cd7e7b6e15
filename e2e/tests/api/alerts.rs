//! The alerts of `config/prometheus`, as Prometheus itself evaluates them.

use anyhow::{Context, Result, ensure};
use e2e::apply::documents;
use e2e::tools::Promtool;

const RULES: &str = include_str!("../../../config/prometheus/rules.yaml");
const TESTS: &str = include_str!("../../../config/prometheus/tests/alerts.yaml");

/// Each alert fires when it should and not earlier, with the text that it should have.
pub(crate) fn fire_when_they_should() -> Result<()> {
    let documents = documents(RULES)?;
    let groups = documents.first().context("no rules")?["spec"].clone();
    let promtool = Promtool::ensure()?;
    promtool.test(&groups, TESTS)?;
    // The tests have to fail with other rules.
    let text = groups.to_string();
    ensure!(text.contains("> 120"), "no rule has such a limit");
    let never = serde_json::from_str(&text.replace("> 120", "> 120000"))?;
    ensure!(promtool.test(&never, TESTS).is_err(), "promtool does not notice an alert that never fires");
    Ok(())
}
