//! The process outside a world.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use local_infrastructure::image::systemctl;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::{CGROUP, INIT, LOGS, STAGE, TOOLS, cgroups, search_path};
use crate::cache;
use crate::tools::Tools;

/// How long the program inside may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(20);

/// Namespaces that an ordinary user may only make together with a user namespace.
const NAMESPACES: [&str; 3] = ["--net", "--mount", "--pid"];

/// Starts the world and waits for its end.
pub(super) fn enter(prepare: impl FnOnce(&Tools) -> Result<()>) -> Result<ExitCode> {
    let tools = Tools::ensure()?;
    prepare(&tools)?;
    // Fetched now, because inside there is no network. A failure is only a warning: not every program here starts
    // machines.
    if let Err(error) = systemctl(&cache::root()?) {
        eprintln!("machines will not start: no systemctl for them: {error}");
    }
    let program = std::env::current_exe().context("find this program")?;
    let logs = make_log_directory(&program)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
    let cgroup = cgroups::name(std::process::id())?;
    let code = runtime.block_on(async {
        cgroups::remove_those_of_the_dead().await?;
        let code = run(&program, &logs, &tools, &cgroup).await;
        cgroups::remove(&cgroup).await?;
        code
    })?;
    if code != 0 || std::env::var_os("E2E_KEEP_LOGS").is_some() {
        eprintln!("logs: {}", logs.display());
    } else {
        fs::remove_dir_all(&logs).with_context(|| format!("remove {}", logs.display()))?;
    }
    Ok(ExitCode::from(code))
}

async fn run(program: &Path, logs: &Path, tools: &Tools, cgroup: &str) -> Result<u8> {
    let user_namespace: &[&str] = if is_privileged()? { &[] } else { &["--user", "--map-root-user"] };
    if !user_namespace.is_empty() {
        check_user_namespaces(user_namespace).await?;
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;

    // setpriv makes the kernel end unshare when this process ends, even by SIGKILL; --kill-child makes it end the world
    // when unshare does.
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(NAMESPACES)
        .args(user_namespace)
        .args(["--fork", "--mount-proc", "--kill-child", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(STAGE, INIT)
        .env(LOGS, logs)
        .env(CGROUP, cgroup)
        .env(TOOLS, serde_json::to_string(tools)?)
        .env("PATH", search_path())
        .stdin(if crate::scenarios::are_read_from_stdin() { Stdio::inherit() } else { Stdio::null() })
        // A terminal sends Ctrl-C to its whole foreground group. In a group of its own, the world gets it once, from
        // this process.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .context("run setpriv and unshare (package util-linux)")?;

    let asked = tokio::select! {
        status = child.wait() => return Ok(exit_code(status.context("wait for the world")?)),
        _ = interrupt.recv() => Signal::INT,
        _ = terminate.recv() => Signal::TERM,
        _ = hang_up.recv() => Signal::HUP,
    };
    if let Some(init) = child.id().and_then(first_child) {
        // The world may just have ended. Then the signal has no receiver, and the wait below ends immediately.
        let _ = kill_process(init, asked);
    }
    tokio::select! {
        status = child.wait() => return Ok(exit_code(status.context("wait for the world")?)),
        () = tokio::time::sleep(GRACE) => eprintln!("still running {} s after it was asked to end: killed", GRACE.as_secs()),
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
    }
    child.kill().await.context("kill the world")?;
    Ok(exit_code(ExitStatus::from_raw(asked.as_raw())))
}

/// The exit code a shell would show.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Whether this process can make namespaces as it is: as root, without having been stripped of the capability.
fn is_privileged() -> Result<bool> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).context("no CapEff in status")?;
    let effective = u64::from_str_radix(effective.trim(), 16).context("read CapEff")?;
    Ok(rustix::process::geteuid().is_root() && effective & CAP_SYS_ADMIN != 0)
}

async fn check_user_namespaces(arguments: &[&str]) -> Result<()> {
    let output = Command::new("unshare")
        .args(NAMESPACES)
        .args(arguments)
        .args(["--fork", "--mount-proc", "true"])
        .output()
        .await
        .context("run unshare (package util-linux)")?;
    if !output.status.success() {
        bail!(
            "an ordinary user may not make namespaces here ({}): run it as root, or allow it (on Ubuntu: sysctl \
             kernel.apparmor_restrict_unprivileged_userns=0)",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The only child of `unshare`: the world's first process.
fn first_child(parent: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

fn make_log_directory(program: &Path) -> Result<PathBuf> {
    let name = program.file_stem().and_then(|name| name.to_str()).unwrap_or("world");
    // Cargo appends a hash to the names of test programs.
    let name = match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => name,
    };
    let name = format!("{name}-{}", std::process::id());
    let target = program.ancestors().find(|path| path.join("CACHEDIR.TAG").is_file());
    let chosen = std::env::var_os("E2E_LOGS").map(PathBuf::from);
    let usual = || target.map(|target| target.join("e2e-logs"));
    let directory = chosen.or_else(usual).unwrap_or_else(std::env::temp_dir).join(&name);
    if fs::create_dir_all(&directory).is_ok() {
        return Ok(directory);
    }
    // Most likely, the target directory belongs to another user.
    let directory = std::env::temp_dir().join("e2e-logs").join(name);
    fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    Ok(directory)
}
