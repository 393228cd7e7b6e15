//! runc for a computer on which root lacks a capability.
//!
//! A privileged container requests every capability. If the daemon itself lacks `CAP_SYS_RESOURCE`, runc refuses. So
//! docker calls this program instead, which removes the capability from the request and then becomes runc.

use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

const CAPABILITY: &str = "CAP_SYS_RESOURCE";
const CAPABILITY_BIT: u32 = 24;

/// Whether this computer lacks the capability.
///
/// # Errors
/// When the kernel does not say.
pub fn must_ask_for_less() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let bounding = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).context("no CapBnd in status")?;
    let bounding = u64::from_str_radix(bounding.trim(), 16).context("read CapBnd")?;
    Ok(bounding & (1 << CAPABILITY_BIT) == 0)
}

/// Changes the file that runc's `arguments` name, if runc is to start a process, and becomes runc.
///
/// # Errors
/// When the file can't be changed or runc can't be run. Otherwise it does not return.
pub fn run(arguments: &[OsString]) -> Result<()> {
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let value = |names: [&str; 2]| {
        let at = arguments.iter().position(|argument| names.iter().any(|name| argument == name))?;
        arguments.get(at + 1).map(PathBuf::from)
    };
    if has("create") || has("run") {
        let bundle = value(["--bundle", "-b"]).unwrap_or_default();
        change(&bundle.join("config.json"), |config| ask_for_less(&mut config["process"]))?;
    } else if has("exec")
        && let Some(process) = value(["--process", "-p"])
    {
        change(&process, ask_for_less)?;
    }
    Err(std::process::Command::new("runc").args(arguments).exec()).context("run runc")
}

fn change(file: &Path, how: impl Fn(&mut Value)) -> Result<()> {
    let text = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let mut value = serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?;
    how(&mut value);
    fs::write(file, value.to_string()).with_context(|| format!("write {}", file.display()))
}

/// Removes from a process what needs the capability: the capability itself, and the protection against being killed
/// when memory is short.
fn ask_for_less(process: &mut Value) {
    for set in process["capabilities"].as_object_mut().into_iter().flat_map(|sets| sets.values_mut()) {
        if let Some(names) = set.as_array_mut() {
            names.retain(|name| name != CAPABILITY);
        }
    }
    if process["oomScoreAdj"].as_i64().is_some_and(|score| score < 0)
        && let Some(fields) = process.as_object_mut()
    {
        fields.remove("oomScoreAdj");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_cannot_be_had_is_taken_out() {
        let mut process = json!({
            "args": ["/sbin/init"],
            "oomScoreAdj": -500,
            "capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE"], "effective": ["CAP_SYS_RESOURCE"]},
        });
        ask_for_less(&mut process);
        let capabilities = json!({"bounding": ["CAP_CHOWN"], "effective": []});
        assert_eq!(process, json!({"args": ["/sbin/init"], "capabilities": capabilities}));
    }

    #[test]
    fn a_process_that_asks_for_nothing_stays_as_it_is() {
        let process = json!({"args": ["true"], "oomScoreAdj": 10, "capabilities": {}});
        let mut changed = process.clone();
        ask_for_less(&mut changed);
        assert_eq!(changed, process);
    }
}
