//! Rules of the packet filter of this world's kernel.

use crate::process::output;
use anyhow::Result;
use std::process::Command;

/// A rule that stays until this is dropped.
pub(crate) struct FilterRule(Vec<String>);

impl FilterRule {
    /// Appends a rule to a chain of a table. `rule` is what `iptables` takes after the chain.
    ///
    /// # Errors
    /// When `iptables` fails. The error has its output.
    pub(crate) fn append(table: &str, chain: &str, rule: &[&str]) -> Result<Self> {
        let text = |text: &&str| (*text).to_owned();
        let rule = Self([&[table, chain], rule].concat().iter().map(text).collect());
        rule.iptables("--append")?;
        Ok(rule)
    }

    fn iptables(&self, action: &str) -> Result<()> {
        let (table, rule) = self.0.split_at(1);
        output(Command::new("iptables").args(["--wait", "--table"]).args(table).arg(action).args(rule)).map(drop)
    }
}

impl Drop for FilterRule {
    fn drop(&mut self) {
        if let Err(error) = self.iptables("--delete") {
            eprintln!("a rule of the packet filter is left, {:?}: {error:#}", self.0);
        }
    }
}
