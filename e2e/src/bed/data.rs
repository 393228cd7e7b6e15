//! Faults in which a member loses its data or gets an older copy of it back, and checks that the other members keep
//! theirs. They work on every infrastructure.

use crate::process::output;
use crate::until::until;
use anyhow::{Context, Result, ensure};
use local_infrastructure::machine::Machine;
use std::fmt;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

/// The wrapper of etcdctl that etcdadm installs on every machine.
const ETCDCTL: &str = "/opt/bin/etcdctl.sh";
/// The prefix of every key of [`Keys`].
const PREFIX: &str = "/kept/";
/// How long a member may take to serve after a restart, on a busy computer.
const SERVES: Duration = Duration::from_secs(60);
/// How long a repeated run of the bootstrap commands may take. It should be refused immediately.
const REFUSAL: Duration = Duration::from_secs(30);

/// A machine with a member of etcd on it, and the faults that can happen to them.
#[expect(async_fn_in_trait, reason = "scenarios run on one thread")]
pub trait Host {
    /// Its name, for messages.
    fn name(&self) -> &str;
    /// Runs a program on the machine. If the program fails, only the exit status says so.
    async fn run(&self, command: &[&str]) -> Result<Output>;
    /// Shuts the machine down cleanly, and starts it again.
    async fn reboot(&self) -> Result<()>;
    /// Shuts the machine down cleanly.
    async fn power_off(&self) -> Result<()>;
    /// Starts the machine.
    async fn power_on(&self) -> Result<()>;
    /// Cuts the power, removes etcd's data, and starts the machine again.
    async fn rob_disk(&self) -> Result<()>;
    /// Deletes etcd's data directory, whether the machine runs or not.
    async fn delete_data(&self) -> Result<()>;
    /// Saves a copy of etcd's data directory.
    async fn save_data(&self) -> Result<()>;
    /// The path of the saved copy on this computer.
    fn saved_data(&self) -> PathBuf;
    /// Cuts the power, replaces etcd's data by the saved copy, and starts the machine again.
    async fn put_back_data(&self) -> Result<()>;
    /// Runs the commands of the machine's bootstrap data again, for at most this time.
    async fn rerun_bootstrap(&self, time: Duration) -> Result<Output>;
}

impl Host for Machine {
    fn name(&self) -> &str {
        &self.spec().name
    }

    async fn run(&self, command: &[&str]) -> Result<Output> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        on(self, move |machine| machine.exec(&command)).await
    }

    async fn reboot(&self) -> Result<()> {
        on(self, Machine::reboot).await
    }

    async fn power_off(&self) -> Result<()> {
        on(self, Machine::power_off).await
    }

    async fn power_on(&self) -> Result<()> {
        on(self, Machine::power_on).await
    }

    async fn rob_disk(&self) -> Result<()> {
        on(self, Machine::rob_disk).await
    }

    async fn delete_data(&self) -> Result<()> {
        on(self, Machine::delete_data).await
    }

    async fn save_data(&self) -> Result<()> {
        on(self, Machine::save_data).await
    }

    fn saved_data(&self) -> PathBuf {
        self.saved_data()
    }

    async fn put_back_data(&self) -> Result<()> {
        on(self, Machine::put_back_data).await
    }

    async fn rerun_bootstrap(&self, time: Duration) -> Result<Output> {
        on(self, move |machine| machine.rerun_bootstrap(time)).await
    }
}

/// How a member loses the record of its votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLoss {
    /// Its machine crashes, and comes back with an empty data disk.
    RobbedDisk,
    /// The data directory is deleted while etcd runs. Then etcd crashes.
    DeletedDirectory,
    /// The data directory is deleted while the machine is off.
    DeletedWhileOff,
    /// The data directory is replaced by a copy that was taken before the member's last start.
    OlderCopy,
    /// The data directory is replaced by a copy that was taken after the member's last start, while etcd ran. After the
    /// copy, etcd was stopped cleanly.
    CopyFromBeforeStop,
}

impl DataLoss {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::RobbedDisk, Self::DeletedDirectory, Self::DeletedWhileOff, Self::OlderCopy, Self::CopyFromBeforeStop];

    /// Whether a saved copy of the data is put back.
    #[must_use]
    pub fn is_by_a_copy(self) -> bool {
        matches!(self, Self::OlderCopy | Self::CopyFromBeforeStop)
    }

    /// What has to happen well before: saves a copy if one is put back, and for [`Self::OlderCopy`] restarts the member
    /// once.
    ///
    /// # Errors
    /// When the machine cannot be used, or its member does not serve again.
    pub async fn prepare(self, host: &impl Host) -> Result<()> {
        if self.is_by_a_copy() {
            host.save_data().await?;
        }
        if self == Self::OlderCopy {
            host.reboot().await?;
            serves(host).await?;
        }
        Ok(())
    }

    /// Makes the loss happen. Afterwards the machine runs and tries to start etcd.
    ///
    /// # Errors
    /// When the machine cannot be used.
    pub async fn strike(self, host: &impl Host) -> Result<()> {
        match self {
            Self::RobbedDisk => host.rob_disk().await,
            Self::DeletedDirectory => {
                host.delete_data().await?;
                said(host, &["sh", "-c", CRASH]).await.map(drop)
            }
            Self::DeletedWhileOff => {
                host.power_off().await?;
                host.delete_data().await?;
                host.power_on().await
            }
            Self::OlderCopy => host.put_back_data().await,
            Self::CopyFromBeforeStop => {
                said(host, &["systemctl", "stop", "etcd"]).await?;
                host.put_back_data().await
            }
        }
    }

    /// Checks that etcd has not started again on this machine, not even for a moment between two probes. If the data
    /// was lost, etcd has made no WAL. If an older copy was put back, etcd has added nothing to its WAL.
    ///
    /// # Errors
    /// When etcd has started again.
    pub async fn has_left_no_trace(self, host: &impl Host) -> Result<()> {
        let log = said(host, &["sh", "-c", &sums("/var/lib/etcd")]).await?;
        if self.is_by_a_copy() {
            let saved = sums(&host.saved_data().display().to_string());
            let saved = output(std::process::Command::new("sh").arg("-c").arg(saved))?;
            ensure!(log == saved, "the older log was {saved}, and is {log}");
        } else {
            ensure!(log.is_empty(), "etcd has begun a new log: {log}");
        }
        Ok(())
    }
}

impl fmt::Display for DataLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RobbedDisk => "its disk is lost",
            Self::DeletedDirectory => "its data directory is deleted while etcd runs",
            Self::DeletedWhileOff => "its data directory is deleted while the machine is off",
            Self::OlderCopy => "an older copy of its data directory is put back",
            Self::CopyFromBeforeStop => "a copy of its data directory from before its last stop is put back",
        })
    }
}

/// Checks that the member never comes back by itself: not while it is left alone, not after another run of the
/// bootstrap commands, and not after a reboot. The member has to stay silent for the time `each` after each of these,
/// and etcd must not have started again according to `loss`.
///
/// # Errors
/// When the member answers, or etcd has started again.
pub async fn never_comes_back(host: &impl Host, loss: DataLoss, each: Duration) -> Result<()> {
    stays_silent(host, each).await.context("while it is left alone")?;
    let again = host.rerun_bootstrap(REFUSAL).await?;
    let said = format!("{}{}", String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&again.stderr));
    ensure!(!again.status.success(), "the bootstrap commands say that all is well: {said}");
    ensure!(again.status.code() != Some(TIMED_OUT), "the bootstrap commands wait forever: {said}");
    stays_silent(host, each).await.context("after the bootstrap commands were run again")?;
    host.reboot().await?;
    stays_silent(host, each).await.context("after a reboot")?;
    loss.has_left_no_trace(host).await
}

/// Kills etcd, as a crash would. Its service starts it again.
const CRASH: &str =
    "for p in /proc/[0-9]*; do [ \"$(readlink $p/exe)\" != /opt/bin/etcd ] || kill -9 ${p#/proc/}; done";

/// The exit status of `timeout` when the time is up.
const TIMED_OUT: i32 = 124;

/// Checks repeatedly, for this time, that the member on this machine does not answer, not even a serializable read of
/// its own data.
///
/// # Errors
/// When it answers; the error says after which time, and how many keys the member has.
pub async fn stays_silent(host: &impl Host, time: Duration) -> Result<()> {
    let begun = Instant::now();
    loop {
        let serializable =
            format!("{ETCDCTL} get {PREFIX} --prefix --keys-only --consistency=s --command-timeout=500ms");
        let asked = host.run(&["sh", "-c", &serializable]).await?;
        if asked.status.success() {
            let keys = String::from_utf8_lossy(&asked.stdout).lines().filter(|line| line.starts_with(PREFIX)).count();
            anyhow::bail!(
                "the member on {} answers after {:.1} s, and has {keys} keys",
                host.name(),
                begun.elapsed().as_secs_f32()
            );
        }
        if begun.elapsed() >= time {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until the member on this machine serves a linearizable read, which takes a quorum.
///
/// # Errors
/// When it does not in time.
pub async fn serves(host: &impl Host) -> Result<()> {
    until(format!("the member on {} serves", host.name()), SERVES, async || {
        Keys::default().are_all_on(host).await.map(Some)
    })
    .await
}

/// How many keys were written, each acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys(usize);

impl Keys {
    /// Writes `more` keys through the member on `host`.
    ///
    /// # Errors
    /// When a write fails.
    pub async fn write(&mut self, host: &impl Host, more: usize) -> Result<()> {
        let numbers = format!("seq {} {}", self.0 + 1, self.0 + more);
        let puts =
            format!("for i in $({numbers}); do {ETCDCTL} put {PREFIX}$i value-$i --command-timeout=5s || exit 1; done");
        done(&host.run(&["sh", "-c", &puts]).await?).context("write keys")?;
        self.0 += more;
        Ok(())
    }

    /// Checks, with a linearizable read through the member on `host`, that no key is lost.
    ///
    /// # Errors
    /// When a key is lost, or the member does not answer.
    pub async fn are_all_on(&self, host: &impl Host) -> Result<()> {
        let get = [ETCDCTL, "get", PREFIX, "--prefix", "--keys-only", "--consistency=l", "--command-timeout=5s"];
        let answer = host.run(&get).await?;
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        done(&answer).context("read keys")?;
        let found = text.lines().filter(|line| line.starts_with(PREFIX)).count();
        ensure!(found >= self.0, "{} keys were acknowledged, {found} are on {}", self.0, host.name());
        Ok(())
    }
}

/// A command that prints the names and checksums of etcd's WAL files, sorted by name, or nothing if there are none.
fn sums(data: &str) -> String {
    format!(
        "if cd '{data}/member/wal' 2>/dev/null; then for f in *.wal; do [ ! -e \"$f\" ] || sha256sum \"$f\"; done; fi"
    )
}

/// Runs a program on the machine, and returns what it printed.
///
/// # Errors
/// When it fails; the error has its output.
pub async fn said(host: &impl Host, command: &[&str]) -> Result<String> {
    let output = host.run(command).await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    done(&output).with_context(|| format!("{} on {}", command.join(" "), host.name()))?;
    Ok(text)
}

fn done(output: &Output) -> Result<()> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{}: {} {}", output.status, text(&output.stdout), text(&output.stderr));
    Ok(())
}

/// Runs a blocking action on a machine.
///
/// # Errors
/// The error of the action.
pub async fn on<T: Send + 'static>(
    machine: &Machine,
    action: impl FnOnce(&Machine) -> local_infrastructure::machine::Result<T> + Send + 'static,
) -> Result<T> {
    let machine = machine.clone();
    Ok(tokio::task::spawn_blocking(move || action(&machine)).await??)
}
