//! Answers of Prometheus' engine without a server: promtool prints the answer to the query of each failing test.

use crate::tools::Promtool;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Labels of a series.
pub type Labels = BTreeMap<String, String>;
/// The answer to one query at one time.
type Samples = Vec<(Labels, f64)>;

/// A series in an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// The labels that distinguish it from the other series of the answer.
    pub labels: Labels,
    /// Times in seconds, and its values at these times.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Its value at `end`, if it has one there.
    pub(super) fn at_end(&self, end: f64) -> Option<f64> {
        self.points.last().filter(|(time, _)| *time >= end).map(|(_, value)| *value)
    }
}

/// The answer to each query at every second before `end`. `input` is promtool's `input_series`, with a value for each
/// second. Values that are not numbers are left out.
///
/// # Errors
/// When promtool does not understand a query or the input, or its output has an unknown form.
pub fn ask(promtool: &Promtool, input: &[Value], queries: &[String], end: usize) -> Result<Vec<Vec<Series>>> {
    let mut tests = Vec::new();
    for (number, query) in queries.iter().enumerate() {
        for time in 0..end {
            // No answer has these labels, so every test fails. promtool prints them beside the answer, and they
            // identify the query.
            let labels = format!("{{query=\"{number}\", time=\"{time}\"}}");
            let expected = json!([{"labels": labels, "value": 0}]);
            tests.push(json!({"expr": query, "eval_time": format!("{time}s"), "exp_samples": expected}));
        }
    }
    let asked = tests.len();
    // promtool reads input only at each evaluation of the rules.
    let tests = json!({
        "evaluation_interval": "1s",
        "tests": [{"interval": "1s", "input_series": input, "promql_expr_test": tests}],
    });
    // promtool requires rules, so this is an unused one.
    let rules = json!({"groups": [{"name": "none", "rules": [{"record": "none", "expr": "vector(0)"}]}]});
    let said = promtool.test(&rules, &tests.to_string()).err().context("no test has failed")?.to_string();
    let printed = printed(&said)?;
    let beginning: String = said.chars().take(2000).collect();
    ensure!(printed.len() == asked, "{} of {asked} answers: {beginning}", printed.len());

    let mut answers = vec![BTreeMap::<Labels, Vec<(f64, f64)>>::new(); queries.len()];
    for (number, time, samples) in printed {
        for (labels, value) in samples.into_iter().filter(|(_, value)| value.is_finite()) {
            answers[number].entry(labels).or_default().push((time, value));
        }
    }
    let all_of = |answer: BTreeMap<Labels, Vec<(f64, f64)>>| {
        answer.into_iter().map(|(labels, points)| Series { labels, points }).collect()
    };
    Ok(answers.into_iter().map(all_of).collect())
}

/// The number of each query, the time, and the answer, from promtool's output.
fn printed(said: &str) -> Result<Vec<(usize, f64, Samples)>> {
    let mut lines = said.lines().map(str::trim_start);
    let mut printed = Vec::new();
    while let Some(line) = lines.next() {
        let Some(expected) = line.strip_prefix("exp: ") else { continue };
        let got = lines.next().and_then(|line| line.strip_prefix("got: ")).with_context(|| line.to_owned())?;
        let (asked, _) = samples(expected)?.pop().with_context(|| line.to_owned())?;
        let part = |name: &str| asked.get(name).with_context(|| line.to_owned());
        printed.push((part("query")?.parse::<usize>()?, part("time")?.parse::<f64>()?, samples(got)?));
    }
    Ok(printed)
}

/// Samples as promtool prints them: `{name="demo", reason="Ready"} 1E+00, {} 2E+00`, or `nil`.
fn samples(text: &str) -> Result<Samples> {
    if text == "nil" {
        return Ok(Vec::new());
    }
    let pair = |text: &str| -> Result<(String, String)> {
        let (name, value) = text.split_once('=').with_context(|| text.to_owned())?;
        Ok((name.to_owned(), value.trim_matches('"').to_owned()))
    };
    let sample = |text: &str| -> Result<(Labels, f64)> {
        let (labels, value) = text.trim_start_matches('{').rsplit_once("} ").with_context(|| text.to_owned())?;
        let labels = labels.split(", ").filter(|text| !text.is_empty()).map(pair).collect::<Result<Labels>>()?;
        Ok((labels, value.parse::<f64>()?))
    };
    text.split(", {").map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_from_a_failure() {
        let said = "promtool test rules: Processing test file: tests.yaml\n\n  FAILED:\n    expr: \"a\", time: 15s,\n\
                    \x20       exp: {query=\"3\", time=\"15\"} 0E+00\n        got: {b=\"one, two\"} 1E+00\n";
        assert!(printed(said).is_err(), "a comma in a value is not understood, and not overlooked");
        let said = said.replace("one, two\"} 1E+00", "one\", c=\"two\"} -1.5E+00, {} NaN");
        let printed = printed(&said).unwrap();
        assert_eq!(printed.len(), 1);
        let (number, time, samples) = &printed[0];
        assert_eq!((*number, *time), (3, 15.0));
        let pairs = [("b", "one"), ("c", "two")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(samples[0], (Labels::from(pairs), -1.5));
        assert!(samples[1].0.is_empty() && samples[1].1.is_nan(), "{samples:?}");
        assert!(super::samples("nil").unwrap().is_empty());
    }
}
