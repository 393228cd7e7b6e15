//! Starts services again that ended by themselves, as systemd does; the `systemctl` of a machine has no daemon for that.
//!
//! What `systemctl` started is in its status files. A service whose main process is gone while nobody holds its lock (a
//! `systemctl stop` that is at work does) ended by itself.

use super::{
    children::Children,
    units::{Policy, Restart},
};
use rustix::process::WaitStatus;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// Where `systemctl` keeps its status files, and below it its locks.
const RUN: &str = "/run";
/// A process that ends while its `systemctl start` is still at work is that one's child: its end is no event here.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A service that has to be looked after.
struct Ended {
    unit: String,
    pid: i32,
}

/// Never ends.
pub(super) async fn watch(children: &Children) {
    let mut deaths = children.deaths();
    let mut starts: HashMap<String, VecDeque<Instant>> = HashMap::new();
    // Ends that were judged already: the service stays down until somebody starts it.
    let mut left_down: HashSet<(String, i32)> = HashSet::new();
    loop {
        for Ended { unit, pid } in ended(Path::new(RUN)) {
            if left_down.contains(&(unit.clone(), pid)) {
                continue;
            }
            let policy = Policy::of(&unit);
            if !wanted(&policy, children.how_ended(pid)) {
                left_down.insert((unit, pid));
                continue;
            }
            sleep(policy.delay).await;
            // It may have been stopped or started in the meantime.
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
        // Whatever ends first: it is only a matter of looking again.
        let _ = timeout(LOOK_AGAIN, deaths.changed()).await;
    }
}

/// Whether one more start is allowed now, which then counts.
fn within_limit(starts: &mut VecDeque<Instant>, policy: &Policy, now: Instant) -> bool {
    starts.retain(|start| now.duration_since(*start) < policy.limit_interval);
    if !policy.limit_interval.is_zero() && starts.len() >= policy.limit_burst {
        return false;
    }
    starts.push_back(now);
    true
}

fn wanted(policy: &Policy, status: Option<WaitStatus>) -> bool {
    // Unknown is what `systemctl start` saw and called a failure.
    let exit = status.and_then(WaitStatus::exit_status);
    // Signals by which a service is asked to end: HUP, INT, PIPE, TERM.
    let asked = status.and_then(WaitStatus::terminating_signal).is_some_and(|signal| [1, 2, 13, 15].contains(&signal));
    let clean = exit == Some(0) || asked;
    if exit.is_some_and(|exit| policy.final_statuses.contains(&exit)) {
        return false;
    }
    match policy.restart {
        Restart::Never => false,
        Restart::Always => true,
        Restart::OnSuccess => clean,
        Restart::OnFailure => !clean,
        Restart::OnAbnormal => !clean && exit.is_none(),
    }
}

/// The services whose main process is gone while nobody is starting or stopping them.
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
            (!is_alive(pid)).then_some(Ended { unit, pid })
        })
        .collect()
}

/// The lock, unless somebody has it. A service that was never locked is nobody's either.
fn lock(path: &PathBuf) -> Option<Option<File>> {
    match File::open(path) {
        Err(_) => Some(None),
        Ok(file) => file.try_lock().is_ok().then_some(Some(file)),
    }
}

/// The main process of a service that should be running, by its status file.
fn main_process(status: &str) -> Option<i32> {
    let value = |wanted: &str| {
        status.lines().filter_map(|line| line.split_once('=')).find(|(key, _)| *key == wanted).map(|(_, value)| value)
    };
    if value("ActiveState") == Some("inactive") {
        return None;
    }
    value("MainPID")?.parse().ok().filter(|pid| *pid > 0)
}

fn is_alive(pid: i32) -> bool {
    crate::machine::Process::with_id(pid).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use rustix::process::{Pid, WaitOptions, waitpid};

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
        let policy = policy();
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
        assert_eq!(wanted(&Policy { restart, ..policy() }, None), again);
    }

    #[rstest]
    #[case(0, true)]
    #[case(1, true)]
    #[case(78, false)]
    fn a_final_exit_status_is_the_end(#[case] exit: i32, #[case] again: bool) {
        let policy = Policy { final_statuses: [78].into(), ..policy() };
        let status = std::process::Command::new("sh").args(["-c", &format!("exit {exit}")]).spawn();
        let pid = Pid::from_child(&status.expect("a process"));
        let ended = waitpid(Some(pid), WaitOptions::empty()).expect("it is a child").map(|(_, status)| status);
        assert_eq!(wanted(&policy, ended), again);
    }

    fn policy() -> Policy {
        Policy {
            restart: Restart::Always,
            final_statuses: [].into(),
            delay: Duration::ZERO,
            limit_interval: Duration::from_secs(10),
            limit_burst: 2,
        }
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
