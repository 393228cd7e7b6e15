//! Builds a module's programs with Go, into a cache directory that is named after what they are built from.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::go::{go, go_output};
use super::module::{Module, Program, required_version};
use super::module_dir;
use super::progress::Progress;
use crate::cache::{self, hexadecimal};

/// How many lines of the compiler's output are kept for an error.
const KEPT_LINES: usize = 40;

/// Returns the directory with those programs of `module` that are `wanted`. Builds them if it does not exist yet.
pub(super) fn ensure(module: &Module, wanted: &dyn Fn(&Program) -> bool) -> Result<PathBuf> {
    let version = version(module)?;
    let programs: Vec<&Program> = module.programs.iter().filter(|program| wanted(program)).collect();
    let arguments = module.build_arguments(&version);
    let directory = cache::root()?.join("tools").join(format!(
        "{}-{version}-{}",
        module.name,
        fingerprint(module, &programs, &arguments)?
    ));
    let waiting = || eprintln!("{} {version}: another run is building it; waiting", module.name);
    cache::directory(&directory, waiting, |into| {
        for program in &programs {
            build(module, &version, program, &arguments, into)?;
        }
        Ok(())
    })?;
    Ok(directory)
}

/// The pinned version of the module's `source`, with its `v`.
pub(super) fn version(module: &Module) -> Result<String> {
    let path = module_dir(module).join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(required_version(&text, module.source)?.to_owned())
}

/// The hash of everything the programs are built from, shortened for the name of a directory.
fn fingerprint(module: &Module, programs: &[&Program], arguments: &[String]) -> Result<String> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        // The length keeps two neighbouring parts from being read as one.
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    };
    for path in sources(&module_dir(module))? {
        add(&fs::read(&path).with_context(|| format!("read {}", path.display()))?);
    }
    for program in programs {
        add(program.package.as_bytes());
        add(program.name.as_bytes());
    }
    for argument in arguments {
        add(argument.as_bytes());
    }
    add(go_output(module, &["env", "GOVERSION", "GOOS", "GOARCH"])?.as_bytes());
    Ok(hexadecimal(&hash.finalize()[..6]))
}

/// The pins, and the sources of the few programs that are our own.
fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let mut written = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("read {}", directory.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "go") {
            written.push(path);
        }
    }
    written.sort();
    Ok([vec![directory.join("go.mod"), directory.join("go.sum")], written].concat())
}

fn build(module: &Module, version: &str, program: &Program, arguments: &[String], into: &Path) -> Result<()> {
    let mut progress = Progress::start(&format!("{} {version}: {}", module.name, program.name));
    // Fetches the sources too. Otherwise fetching would look like a build that makes no progress.
    let list = ["list", "-deps"].into_iter().chain(arguments.iter().map(String::as_str)).chain([program.package]);
    let packages = go_output(module, &Vec::from_iter(list))?.lines().count();
    progress.total(packages);
    let mut child = go(module)
        .args(["build", "-v"])
        .args(arguments)
        .arg("-o")
        .arg(into.join(program.name))
        .arg(program.package)
        .stderr(Stdio::piped())
        .spawn()
        .context("run go build")?;
    let mut last_lines = std::collections::VecDeque::new();
    for line in BufReader::new(child.stderr.take().context("go's standard error is piped")?).lines() {
        let line = line.context("read go's output")?;
        progress.step();
        last_lines.push_back(line);
        if last_lines.len() > KEPT_LINES {
            last_lines.pop_front();
        }
    }
    if !child.wait().context("wait for go build")?.success() {
        bail!("go build {}:\n{}", program.package, last_lines.make_contiguous().join("\n"));
    }
    progress.finish();
    Ok(())
}
