//! Somebody who writes to etcd all the time.

use anyhow::{Context, Result};
use local_infrastructure::machine::Machine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;

/// Puts one key after the other through the member of one machine.
pub(super) struct Writer {
    stop: Arc<AtomicBool>,
    puts: JoinHandle<Result<(usize, Vec<String>)>>,
}

impl Writer {
    pub(super) fn start(machine: Machine) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let puts = tokio::task::spawn_blocking({
            let stop = stop.clone();
            move || {
                let (mut written, mut failed) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    let value = written.to_string();
                    let put = ["/opt/bin/etcdctl.sh", "put", "written-while-growing", &value, "--command-timeout=5s"];
                    let output = machine.exec(&put).context("run etcdctl")?;
                    if output.status.success() {
                        written += 1;
                    } else {
                        failed.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
                    }
                }
                Ok((written, failed))
            }
        });
        Self { stop, puts }
    }

    /// Ends it, and gives how many writes succeeded, and what those that failed said.
    pub(super) async fn stop(mut self) -> Result<(usize, Vec<String>)> {
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.puts).await?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
