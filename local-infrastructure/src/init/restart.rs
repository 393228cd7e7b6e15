//! Restarts services that ended by themselves, as systemd does. A machine's `systemctl` has no daemon for that.
//!
//! The status files of `systemctl` say which services it has started. A service ended by itself if its main process is
//! gone and no process holds the service's lock. A `systemctl stop` at work holds it.

use super::{
    children::Children,
    units::{Policy, Restart},
};
use crate::machine::Process;
use rustix::process::WaitStatus;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// The directory of the status files of `systemctl`. The locks are below it.
const RUN: &str = "/run";
/// How often to check without an event: a process that ends during its `systemctl start` is a child of `systemctl`, so
/// its end causes no event here.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A service whose main process has ended.
struct Ended {
    unit: String,
    pid: i32,
}

/// Restarts services. Never returns.
pub(super) async fn watch(children: &Children) {
    let mut deaths = children.deaths();
    let mut starts: HashMap<String, VecDeque<Instant>> = HashMap::new();
    // Ends that have already been judged: the service stays down until a person or a program starts it.
    let mut left_down: HashSet<(String, i32)> = HashSet::new();
    loop {
        for Ended { unit, pid } in ended(Path::new(RUN)) {
            if left_down.contains(&(unit.clone(), pid)) {
                continue;
            }
            let policy = Policy::of(&unit);
            let inherited = children.how_ended(pid);
            if inherited.is_some() {
                // If the process ended during `systemctl start` instead, `systemctl` has already cleaned up after it.
                stop_post(children, &unit, &policy).await;
            }
            let status =
                inherited.and_then(WaitStatus::exit_status).or_else(|| seen_by_systemctl(Path::new(RUN), &unit));
            if status.is_some_and(|status| policy.final_statuses.contains(&status)) {
                println!("{unit}: its process {pid} ended with status {status:?}, left down.");
                left_down.insert((unit, pid));
                continue;
            }
            if !wanted(policy.restart, inherited) {
                left_down.insert((unit, pid));
                continue;
            }
            sleep(policy.delay).await;
            // The service may have been stopped or started meanwhile.
            if !ended(Path::new(RUN)).iter().any(|still| still.unit == unit && still.pid == pid) {
                continue;
            }
            if !within_limit(starts.entry(unit.clone()).or_default(), &policy, Instant::now()) {
                println!("{unit}: started too often in too short a time, left down.");
                left_down.insert((unit, pid));
                continue;
            }
            println!("{unit}: its process {pid} ended, starting it again.");
            if let Err(error) = children.run(Command::new("systemctl").args(["start", &unit])).await {
                println!("systemctl cannot be started: {error}");
            }
        }
        // Whichever comes first, the next step is another check.
        let _ = timeout(LOOK_AGAIN, deaths.changed()).await;
    }
}

/// Runs the commands that the unit names for after its end.
async fn stop_post(children: &Children, unit: &str, policy: &Policy) {
    for command in &policy.stop_post {
        let Some((program, arguments)) = command.split_first() else { continue };
        if let Err(error) = children.run(Command::new(program).args(arguments)).await {
            println!("{unit}: {program} cannot be run after its end: {error}");
        }
    }
}

/// The exit status of a process that ended before its `systemctl start` did. `systemctl` has recorded it; see
/// `image.rs`.
fn seen_by_systemctl(run: &Path, unit: &str) -> Option<i32> {
    let status = fs::read_to_string(run.join(format!("{unit}.status"))).ok()?;
    value(&status, "ExecMainStatus")?.parse().ok()
}

/// Whether one more start is allowed now. If so, counts it.
fn within_limit(starts: &mut VecDeque<Instant>, policy: &Policy, now: Instant) -> bool {
    starts.retain(|start| now.duration_since(*start) < policy.limit_interval);
    if !policy.limit_interval.is_zero() && starts.len() >= policy.limit_burst {
        return false;
    }
    starts.push_back(now);
    true
}

fn wanted(restart: Restart, status: Option<WaitStatus>) -> bool {
    // If the status is unknown, `systemctl start` has seen the end, and has treated it as a failure.
    let exit = status.and_then(WaitStatus::exit_status);
    // Signals that ask a service to end: HUP, INT, PIPE, TERM.
    let asked = status.and_then(WaitStatus::terminating_signal).is_some_and(|signal| [1, 2, 13, 15].contains(&signal));
    let clean = exit == Some(0) || asked;
    match restart {
        Restart::Never => false,
        Restart::Always => true,
        Restart::OnSuccess => clean,
        Restart::OnFailure => !clean,
        Restart::OnAbnormal => !clean && exit.is_none(),
    }
}

/// The services whose main process is gone, unless something is just starting or stopping them.
fn ended(run: &Path) -> Vec<Ended> {
    let Ok(entries) = fs::read_dir(run) else { return Vec::new() };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            let unit = name.strip_suffix(".status").filter(|unit| unit.ends_with(".service"))?.to_owned();
            let lock = lock(&run.join("systemd").join(format!("{unit}.lock")))?;
            let status = fs::read_to_string(run.join(name)).ok()?;
            drop(lock);
            let pid = main_process(&status)?;
            Process::with_id(pid).is_none().then_some(Ended { unit, pid })
        })
        .collect()
}

/// The lock; `None` if another process holds it. A service that was never locked has no lock file, and no holder
/// either.
fn lock(path: &PathBuf) -> Option<Option<File>> {
    match File::open(path) {
        Err(_) => Some(None),
        Ok(file) => file.try_lock().is_ok().then_some(Some(file)),
    }
}

/// The main process of a service that should be running, by its status file.
fn main_process(status: &str) -> Option<i32> {
    if value(status, "ActiveState") == Some("inactive") {
        return None;
    }
    value(status, "MainPID")?.parse().ok().filter(|pid| *pid > 0)
}

fn value<'a>(status: &'a str, wanted: &str) -> Option<&'a str> {
    status.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == wanted).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("MainPID=17\n", Some(17))]
    #[case("ActiveState=active\nMainPID=17\n", Some(17))]
    #[case("ActiveState=failed\nMainPID=17\n", Some(17))]
    #[case("ActiveState=inactive\nMainPID=17\n", None)]
    #[case("ActiveState=active\n", None)]
    #[case("MainPID=\n", None)]
    fn the_main_process_is_read_from_the_status(#[case] status: &str, #[case] pid: Option<i32>) {
        assert_eq!(main_process(status), pid);
    }

    #[test]
    fn too_many_starts_in_too_short_a_time_are_refused() {
        let policy = Policy {
            restart: Restart::Always,
            final_statuses: Vec::new(),
            stop_post: Vec::new(),
            delay: Duration::ZERO,
            limit_interval: Duration::from_secs(10),
            limit_burst: 2,
        };
        let mut starts = VecDeque::new();
        let begin = Instant::now();
        assert!(within_limit(&mut starts, &policy, begin));
        assert!(within_limit(&mut starts, &policy, begin + Duration::from_secs(1)));
        assert!(!within_limit(&mut starts, &policy, begin + Duration::from_secs(2)));
        assert!(within_limit(&mut starts, &policy, begin + Duration::from_secs(10)));
        let unlimited = Policy { limit_interval: Duration::ZERO, ..policy };
        assert!((0..9).all(|_| within_limit(&mut starts, &unlimited, begin)));
    }

    #[rstest]
    #[case(Restart::Always, true)]
    #[case(Restart::OnFailure, true)]
    #[case(Restart::OnAbnormal, true)]
    #[case(Restart::OnSuccess, false)]
    #[case(Restart::Never, false)]
    fn an_end_that_nobody_saw_is_a_failure(#[case] restart: Restart, #[case] again: bool) {
        assert_eq!(wanted(restart, None), again);
    }

    #[test]
    fn the_status_that_systemctl_noted_is_read() {
        let run = tempfile::tempdir().expect("a directory");
        assert_eq!(seen_by_systemctl(run.path(), "x.service"), None);
        fs::write(run.path().join("x.service.status"), "ExecMainStatus=78\nMainPID=17\n").expect("written");
        assert_eq!(seen_by_systemctl(run.path(), "x.service"), Some(78));
    }

    #[test]
    fn a_service_is_left_alone_while_its_lock_is_held() {
        let run = tempfile::tempdir().expect("a directory");
        fs::create_dir(run.path().join("systemd")).expect("created");
        fs::write(run.path().join("x.service.status"), "MainPID=999999\n").expect("written");
        let lock = File::create(run.path().join("systemd/x.service.lock")).expect("created");
        assert_eq!(ended(run.path()).len(), 1);
        lock.lock().expect("locked");
        assert!(ended(run.path()).is_empty());
    }
}
