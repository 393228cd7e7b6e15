//! promtool: built only where a test asks for it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::build;
use super::module::PROMTOOL;

/// The program that checks and tests alert rules.
#[derive(Debug, Clone)]
pub struct Promtool {
    program: PathBuf,
}

impl Promtool {
    /// Finds it, building it if it is missing (some minutes on two cores). Inside a world it must be there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn ensure() -> Result<Self> {
        Ok(Self { program: build::ensure(&PROMTOOL, &|_| true)?.join("promtool") })
    }

    /// Checks groups of rules.
    ///
    /// # Errors
    /// When they are wrong. The error has promtool's output.
    pub fn check(&self, groups: &Value) -> Result<()> {
        self.run("check", groups, "").map(drop)
    }

    /// Runs tests that read groups of rules as `rules.yaml`. Returns what promtool prints.
    ///
    /// # Errors
    /// When a test fails. The error has promtool's output.
    pub fn test(&self, groups: &Value, tests: &str) -> Result<String> {
        self.run("test", groups, tests)
    }

    fn run(&self, what: &str, groups: &Value, tests: &str) -> Result<String> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let (rules, tested) = (folder.path().join("rules.yaml"), folder.path().join("tests.yaml"));
        // JSON is YAML.
        fs::write(&rules, groups.to_string())?;
        fs::write(&tested, tests)?;
        let file = if what == "test" { &tested } else { &rules };
        let mut command = std::process::Command::new(&self.program);
        let output = command.arg(what).arg("rules").arg(file).output().context("run promtool")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        ensure!(output.status.success(), "promtool {what} rules: {said}");
        Ok(said)
    }
}
