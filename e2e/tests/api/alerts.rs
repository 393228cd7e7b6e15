//! The alerts of `config/prometheus`, as Prometheus itself evaluates them.

use anyhow::{Context, Result, bail, ensure};
use e2e::apply::documents;
use e2e::tools::Promtool;
use serde_json::{Value, json};

const RULES: &str = include_str!("../../../config/prometheus/rules.yaml");
const TESTS: &str = include_str!("../../../config/prometheus/tests/alerts.yaml");

/// An expression that has no result, so that an alert with it never fires.
const NEVER: &str = "vector(0) > 1";

/// Each alert fires when it should and not earlier, with the text that it should have. Without any one of them, the
/// tests fail.
pub(crate) fn fire_when_they_should() -> Result<()> {
    let groups = documents(RULES)?.first().context("no rules")?["spec"].clone();
    let tests = documents(TESTS)?.into_iter().next().context("no tests")?;
    let promtool = Promtool::ensure()?;
    promtool.check(&groups)?;
    promtool.test(&groups, TESTS)?;
    let mut silenced = 0;
    for (group, rule) in rules(&groups) {
        let mut never = groups.clone();
        let changed = &mut never["groups"][group]["rules"][rule];
        changed["expr"] = json!(NEVER);
        let name = changed["alert"].as_str().context("a rule without an alert")?.to_owned();
        let about = only_about(&tests, &name).to_string();
        let Err(error) = promtool.test(&never, &about) else { bail!("no test notices that {name} never fires") };
        // For this reason and no other, such as an expression that promtool does not understand.
        let says = format!("{error:#}");
        ensure!(says.contains(&format!("alertname: {name},")), "without {name}: {says}");
        silenced += 1;
    }
    ensure!(silenced > 15, "only {silenced} rules");
    Ok(())
}

/// The place of every rule: its group, and its number there.
fn rules(groups: &Value) -> Vec<(usize, usize)> {
    let groups = groups["groups"].as_array().into_iter().flatten().enumerate();
    let of = |(group, rules): (usize, &Value)| {
        let count = rules["rules"].as_array().map_or(0, Vec::len);
        (0..count).map(move |rule| (group, rule))
    };
    groups.flat_map(of).collect()
}

/// The tests of one alert.
fn only_about(tests: &Value, alert: &str) -> Value {
    let mut only = tests.clone();
    if let Some(all) = only["tests"].as_array_mut() {
        all.retain(|test| test["alert_rule_test"].as_array().into_iter().flatten().any(|it| it["alertname"] == alert));
    }
    only
}
