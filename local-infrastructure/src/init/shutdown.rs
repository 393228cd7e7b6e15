//! The end of a machine.

use super::children::Children;
use rustix::process::{Signal, kill_process};
use std::{fs, time::Duration};
use tokio::{signal::unix::Signal as Signals, time::timeout};

/// How long processes may take after SIGTERM. It is shorter than the time that the shutdown grants to this process.
const GRACE: Duration = Duration::from_secs(8);

/// Ends all processes in an orderly way. The kernel kills those that are left when this process ends.
pub(super) async fn end_all(children: &Children, child_ended: &mut Signals) {
    println!("Shutting down.");
    for pid in others() {
        // A process that has already ended needs no signal.
        let _ = kill_process(pid, Signal::TERM);
        // A stopped process reacts to SIGTERM only when it continues.
        let _ = kill_process(pid, Signal::CONT);
    }
    let all_gone = async {
        loop {
            children.reap();
            if others().is_empty() {
                return;
            }
            child_ended.recv().await;
        }
    };
    if timeout(GRACE, all_gone).await.is_err() {
        println!("{} processes do not end by themselves.", others().len());
    }
}

/// Every other process of the machine.
fn others() -> Vec<rustix::process::Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid > 1)
        .filter_map(rustix::process::Pid::from_raw)
        .collect()
}
