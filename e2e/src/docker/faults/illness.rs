//! Faults of a container that is neither frozen nor killed: its network is cut or slow, its etcd stutters, or a byte of
//! its log has changed. What [`crate::bed::illness`] does with certificates works here too.

use super::DockerBed;
use crate::bed::illness::{BEGIN, BURST, STEADY, STUTTER, has_waited, shape};
use crate::docker::volumes::Volumes;
use crate::process::output;
use anyhow::{Context, Result, ensure};
use local_infrastructure::machine::Way;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An offset in a log file at which something has been written, whatever the log holds: it is in one of the first
/// records.
const IN_THE_FIRST_RECORDS: u64 = 100;
/// A container's end of its cable.
const CABLE: &str = "eth0";
/// Drops what others send to a container, and what the container sends.
const NOTHING_COMES: &str = "-A PREROUTING ! -i lo -j DROP\n";
const NOTHING_GOES: &str = "-A OUTPUT ! -o lo -j DROP\n";

impl DockerBed {
    /// Cuts a container off from everything: packets are dropped in both directions until [`Self::reconnect`], or until
    /// it starts again.
    ///
    /// # Errors
    /// When it does not run, or the rules are refused.
    pub async fn cut_off(&self, container: &str) -> Result<()> {
        self.fault(&format!("{container} is cut off"), &[container]);
        self.filter(container, &[NOTHING_COMES, NOTHING_GOES].concat()).await
    }

    /// Cuts one direction of a container's network. This replaces every other cut.
    ///
    /// # Errors
    /// As for [`Self::cut_off`].
    pub async fn cut_off_one_way(&self, container: &str, way: Way) -> Result<()> {
        let (what, rule) = match way {
            Way::In => ("hears nobody", NOTHING_COMES),
            Way::Out => ("is heard by nobody", NOTHING_GOES),
        };
        self.fault(&format!("{container} {what}"), &[container]);
        self.filter(container, rule).await
    }

    /// Cuts a container off from these addresses only. This replaces every other cut.
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

    /// Sets all rules of the `raw` table of a container. This table comes before connection tracking, and nothing else
    /// in the container uses it. This computer's own iptables, which docker needs anyway, sets the rules, because the
    /// iptables in an image may be for another kernel.
    async fn filter(&self, container: &str, rules: &str) -> Result<()> {
        let file = self.world.state("docker/rules")?.join(container);
        fs::write(&file, format!("*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n"))
            .with_context(|| format!("write {}", file.display()))?;
        self.in_network(container, &["iptables-restore", &file.to_string_lossy()]).await.map(drop)
    }

    /// Slows down what a container sends: 1 Mbit/s goes through, and the rest waits.
    ///
    /// # Errors
    /// When the container does not run, or its network is not slower.
    pub async fn slow_network(&self, container: &str) -> Result<()> {
        self.fault(&format!("{container}: its network is slow"), &[container]);
        self.in_network(container, &shape(CABLE)).await?;
        let gateway = "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}";
        let gateway = self.daemon.docker(&["inspect", "--format", gateway, container]).await?;
        self.daemon.exec(container, &["bash", "-c", BURST, gateway.trim()]).await?;
        let told = self.in_network(container, &["tc", "-s", "qdisc", "show", "dev", CABLE]).await?;
        ensure!(has_waited(&told), "nothing is slowed down: {told}");
        Ok(())
    }

    /// Ends what [`Self::slow_network`] has begun.
    ///
    /// # Errors
    /// When it does not run, or its network was not slow.
    pub async fn end_slow_network(&self, container: &str) -> Result<()> {
        self.fault_is_over(&format!("{container}: its network is as fast as before"), &[container]);
        self.in_network(container, &["tc", "qdisc", "del", "dev", CABLE, "root"]).await.map(drop)
    }

    /// Makes etcd stutter, as it does if its disk is slow: etcd is frozen most of the time, but gets everything done.
    ///
    /// # Errors
    /// When the container does not run.
    pub async fn slow_disk(&self, container: &str) -> Result<()> {
        self.fault(&format!("{container}: its etcd stands still most of the time"), &[container]);
        self.exec(container, &["sh", "-c", BEGIN, STUTTER]).await.map(drop)
    }

    /// Ends what [`Self::slow_disk`] has begun.
    ///
    /// # Errors
    /// When the container does not run, or its etcd was not frozen.
    pub async fn end_slow_disk(&self, container: &str) -> Result<()> {
        self.fault_is_over(&format!("{container}: its etcd goes on"), &[container]);
        self.exec(container, &["sh", "-c", STEADY]).await.map(drop)
    }

    /// Runs a program of this computer in the network of a container, and returns what it printed.
    async fn in_network(&self, container: &str, command: &[&str]) -> Result<String> {
        let pid = self.daemon.docker(&["inspect", "--format", "{{.State.Pid}}", container]).await?;
        ensure!(pid.trim() != "0", "{container} does not run");
        let mut enter = Command::new("nsenter");
        enter.args(["--net", "--target", pid.trim()]).args(command);
        output(&mut enter)
    }

    /// Kills a machine, changes one byte in the written part of the latest file of etcd's WAL, and starts the machine
    /// again.
    ///
    /// # Errors
    /// When there is no such container, or it has no WAL.
    pub async fn corrupt_log(&self, container: &str) -> Result<()> {
        self.fault_for_good(&format!("{container}: a byte of its log changes"), &[container]);
        self.kill(container).await?;
        change_a_byte(&self.etcd_data(container)?.join("member/wal"))?;
        self.daemon.docker(&["start", container]).await.map(drop)
    }

    /// The path of a container's etcd data on this computer.
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
    // The names of WAL files begin with their numbers.
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
