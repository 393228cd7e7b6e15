//! promtool: built only where a test asks for it.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
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

    /// Checks groups of rules, and runs tests that read them as `rules.yaml`. Returns what promtool prints.
    ///
    /// # Errors
    /// When the rules are wrong, or a test fails. The error has promtool's output.
    pub fn test(&self, groups: &Value, tests: &str) -> Result<String> {
        let folder = tempfile::tempdir().context("make a folder")?;
        let (rules, tested) = (folder.path().join("rules.yaml"), folder.path().join("tests.yaml"));
        // JSON is YAML.
        fs::write(&rules, groups.to_string())?;
        fs::write(&tested, tests)?;
        let run = |what: &str, file: &PathBuf| {
            let mut command = std::process::Command::new(&self.program);
            let output = command.arg(what).arg("rules").arg(file).output().context("run promtool")?;
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            anyhow::ensure!(output.status.success(), "promtool {what} rules: {said}");
            anyhow::Ok(said)
        };
        run("check", &rules)?;
        run("test", &tested)
    }
}
