//! What ails a container that is not frozen or killed: a network that is cut, a log in which a byte has changed. What
//! [`crate::bed::illness`] does with certificates works here too.

use super::DockerBed;
use crate::docker::volumes::Volumes;
use crate::process::output;
use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the first record of a log has been written, whatever it holds.
const IN_THE_FIRST_RECORDS: u64 = 100;

impl DockerBed {
    /// Cuts a container off from everything: packets are dropped in both directions until [`Self::reconnect`], or until
    /// it starts again.
    ///
    /// # Errors
    /// When it does not run, or the rules are refused.
    pub async fn cut_off(&self, container: &str) -> Result<()> {
        self.fault(&format!("{container} is cut off"), &[container]);
        self.filter(container, "-A PREROUTING ! -i lo -j DROP\n-A OUTPUT ! -o lo -j DROP\n").await
    }

    /// Cuts it off from these addresses only, in place of every other cut.
    ///
    /// # Errors
    /// As for [`Self::cut_off`].
    pub async fn cut_off_from(&self, container: &str, addresses: &[&str]) -> Result<()> {
        self.fault(&format!("{container} is cut off from {}", addresses.join(", ")), &[container]);
        let rule = |address: &&str| format!("-A PREROUTING -s {address} -j DROP\n-A OUTPUT -d {address} -j DROP\n");
        self.filter(container, &addresses.iter().map(rule).collect::<String>()).await
    }

    /// Ends every cut of a container.
    ///
    /// # Errors
    /// As for [`Self::cut_off`].
    pub async fn reconnect(&self, container: &str) -> Result<()> {
        self.fault_is_over(&format!("{container} is connected again"), &[container]);
        self.filter(container, "").await
    }

    /// These are all rules of the `raw` table of a container: it is before connection tracking, and nothing else there
    /// uses it. This computer's own iptables sets them, which docker needs too: that in an image may be for another
    /// kernel.
    async fn filter(&self, container: &str, rules: &str) -> Result<()> {
        let pid = self.daemon.docker(&["inspect", "--format", "{{.State.Pid}}", container]).await?;
        ensure!(pid.trim() != "0", "{container} does not run");
        let file = self.world.state("docker/rules")?.join(container);
        fs::write(&file, format!("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n"))
            .with_context(|| format!("write {}", file.display()))?;
        let mut restore = Command::new("nsenter");
        restore.args(["--net", "--target", pid.trim(), "iptables-restore"]).arg(file);
        output(&mut restore).map(drop)
    }

    /// Kills a machine, changes one byte of the latest file of etcd's log, among what has been written, and starts it
    /// again.
    ///
    /// # Errors
    /// When there is no such container, or no log on it.
    pub async fn corrupt_log(&self, container: &str) -> Result<()> {
        self.fault_for_good(&format!("{container}: a byte of its log changes"), &[container]);
        self.kill(container).await?;
        change_a_byte(&self.etcd_data(container)?.join("member/wal"))?;
        self.daemon.docker(&["start", container]).await.map(drop)
    }

    /// Where a container has etcd's data, seen from outside.
    ///
    /// # Errors
    /// When there is no such container, or it has no volume for that.
    pub fn etcd_data(&self, container: &str) -> Result<PathBuf> {
        let found = Volumes::below(self.daemon.data_root()).data(container);
        found.with_context(|| format!("{container} has no volume for etcd's data"))
    }
}

fn change_a_byte(logs: &Path) -> Result<()> {
    let in_logs = || logs.display().to_string();
    let files = fs::read_dir(logs).with_context(in_logs)?.flatten().map(|entry| entry.path());
    // Their names begin with their numbers.
    let latest = files.filter(|path| path.extension().is_some_and(|extension| extension == "wal")).max();
    let file = OpenOptions::new().read(true).write(true).open(latest.with_context(in_logs)?).with_context(in_logs)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, IN_THE_FIRST_RECORDS).with_context(in_logs)?;
    file.write_all_at(&[byte[0] ^ 0xff], IN_THE_FIRST_RECORDS).with_context(in_logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_of_the_latest_log_is_another_one() {
        let logs = tempfile::tempdir().unwrap();
        let files = ["0-0.wal", "1-9.wal", "0.tmp"].map(|name| logs.path().join(name));
        files.iter().for_each(|file| fs::write(file, [7_u8; 200]).unwrap());
        change_a_byte(logs.path()).unwrap();
        let changed = files.map(|file| fs::read(file).unwrap().iter().filter(|byte| **byte != 7).count());
        assert_eq!(changed, [0, 1, 0]);
        assert!(change_a_byte(&logs.path().join("none")).is_err());
    }
}
