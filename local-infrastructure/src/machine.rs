//! Machines of namespaces, without Kubernetes: what the controller makes, and what a person or a scenario does to them.
//!
//! Everything about a machine lies in one directory of the state directory, so that any process with that directory can
//! act on it, and so that machines outlive the process that made them. All calls block; none takes longer than a
//! machine's orderly shutdown.

mod disk;
mod files;
mod network;
mod power;
mod processes;
mod spec;

pub(crate) use disk::{in_user_namespace, overlaid};
pub(crate) use files::{if_there, names, on, write_atomic};
pub use network::Way;
pub(crate) use network::{apply_partition, configure_inside, connect};
pub(crate) use processes::Process;
pub(crate) use spec::{BOOTSTRAP, Layout};
pub use spec::{Bootstrap, MachineSpec};

use crate::reservations::Reservations;
use std::{
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

/// What can go wrong with a machine.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such machine.
    #[error("there is no machine {0}")]
    NotFound(String),
    /// The machine has no processes now.
    #[error("machine {0} is not running")]
    NotRunning(String),
    /// No copy of the machine's etcd data has been saved.
    #[error("no copy of the etcd data of machine {0} has been saved")]
    NothingSaved(String),
    /// Every address of the subnet is taken.
    #[error("no address of {0} is free")]
    NoAddress(String),
    /// A program that makes or changes a machine failed.
    #[error("{program} failed: {message}")]
    Program {
        /// What was run.
        program: String,
        /// What it said.
        message: String,
    },
    /// A file of the state directory, or one that a machine is made of, could not be used.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The machine's processes did not do what the kernel was asked for.
    #[error("machine {machine}: {what}")]
    Process {
        /// Whose processes.
        machine: String,
        /// What did not happen.
        what: String,
    },
}

/// Result of something done to a machine.
pub type Result<T> = std::result::Result<T, Error>;

/// All machines of one state directory. Whatever changes or reads them fails if that directory cannot be used.
#[derive(Clone, Debug)]
pub struct Machines {
    state_dir: PathBuf,
}

impl Machines {
    /// The machines whose state lies in `state_dir`, which need not exist yet. It must be on another file system than the
    /// computer's `/usr`, `/etc` and `/var`, such as a tmpfs: machines' disks are overlays of those.
    #[must_use]
    pub fn open(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into() }
    }

    /// The addresses that are taken on this network.
    #[must_use]
    pub fn reservations(&self) -> Reservations {
        Reservations::open(&self.state_dir)
    }

    /// Every machine that exists, by namespace and name.
    pub fn list(&self) -> Result<Vec<Machine>> {
        let root = self.state_dir.join("machines");
        let mut found = Vec::new();
        for namespace in names(&root)? {
            for name in names(&root.join(&namespace))? {
                match self.get(&namespace, &name) {
                    Ok(machine) => found.push(machine),
                    Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// One machine.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it does not exist (yet, or no longer).
    pub fn get(&self, namespace: &str, name: &str) -> Result<Machine> {
        let layout = self.layout(namespace, name);
        let spec = files::read_json(&layout.spec())?.ok_or_else(|| Error::NotFound(layout.label().to_owned()))?;
        Ok(Machine { state_dir: self.state_dir.clone(), layout, spec })
    }

    /// Makes a machine with an empty disk, or returns the one that is there. It is not started.
    pub fn create(&self, spec: MachineSpec, user_data: &[u8]) -> Result<Machine> {
        let layout = self.layout(&spec.namespace, &spec.name);
        match self.get(&spec.namespace, &spec.name) {
            Err(Error::NotFound(_)) => {}
            known => return known,
        }
        disk::prepare(&layout, &spec, user_data)?;
        // The last thing written: a machine that was half made by a process that died is made again.
        let json = serde_json::to_vec_pretty(&spec).map_err(io::Error::from).map_err(on(&layout.spec()))?;
        write_atomic(&layout.spec(), &json)?;
        Ok(Machine { state_dir: self.state_dir.clone(), layout, spec })
    }

    /// The machine of that name, which may not exist yet, is created as usual and then never boots: it has an address
    /// and nothing in it ever runs. Holds until [`Self::clear_faults`], and is looked at whenever the machine starts.
    pub fn fault_no_boot(&self, namespace: &str, name: &str) -> Result<()> {
        write_atomic(&self.faults(namespace, name).join("no-boot"), b"")
    }

    /// The machine of that name, which may not exist yet, waits so long before it boots. Holds until
    /// [`Self::clear_faults`], and is looked at whenever the machine starts.
    pub fn fault_boot_delay(&self, namespace: &str, name: &str, delay: Duration) -> Result<()> {
        write_atomic(&self.faults(namespace, name).join("boot-delay"), delay.as_secs_f64().to_string().as_bytes())
    }

    /// Forgets the faults prepared for a machine. A machine that did not boot because of them does so once rebooted.
    pub fn clear_faults(&self, namespace: &str, name: &str) -> Result<()> {
        files::remove_tree(&self.faults(namespace, name))
    }

    fn faults(&self, namespace: &str, name: &str) -> PathBuf {
        self.layout(namespace, name).faults().to_owned()
    }

    /// Where a machine's files are.
    pub(crate) fn layout(&self, namespace: &str, name: &str) -> Layout {
        Layout::new(&self.state_dir, namespace, name)
    }

    /// Ends a machine and removes every trace of it, whatever state it is in. Nothing happens if there is none.
    ///
    /// # Errors
    /// If something of it cannot be removed; calling again goes on where it stopped.
    pub fn destroy(&self, namespace: &str, name: &str) -> Result<()> {
        let layout = self.layout(namespace, name);
        if layout.directory().exists() {
            power::destroy(&layout)?;
        }
        self.reservations().release(&machine_owner(namespace, name))?;
        // Left only if it was the last machine of the namespace; a race with a new one is not an error.
        let _ = layout.directory().parent().map(fs::remove_dir);
        Ok(())
    }
}

/// Under which name a machine's address is reserved.
pub(crate) fn machine_owner(namespace: &str, name: &str) -> String {
    format!("machine/{namespace}/{name}")
}

/// One machine that exists, running or not. Whatever is done to it fails if its files cannot be used, or if its processes or
/// its network do not follow.
#[derive(Clone, Debug)]
pub struct Machine {
    state_dir: PathBuf,
    layout: Layout,
    spec: MachineSpec,
}

impl Machine {
    /// What it was made from.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The address that is reserved for it: its own, where it has IPv4.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.spec.address
    }

    /// Its address on the bridge.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.spec.ip()
    }

    /// Where all its files are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.layout.directory()
    }

    /// Whether its first process is there. A frozen machine is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        power::running(&self.layout).is_some()
    }

    /// Whether it is meant to be running: false after a kill or a power-off.
    #[must_use]
    pub fn is_powered_on(&self) -> bool {
        self.layout.powered_on()
    }

    /// Whether it has ever been started.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.layout.boots() > 0
    }

    /// The process id, in the caller's world, of its first process.
    #[must_use]
    pub fn first_process(&self) -> Option<i32> {
        power::running(&self.layout).map(|process| process.pid)
    }

    /// How its bootstrap data ended, once it has.
    pub fn bootstrap(&self) -> Result<Option<Bootstrap>> {
        self.layout.read_bootstrap()
    }

    /// Everything it has printed since it was made.
    pub fn console(&self) -> Result<String> {
        let printed = if_there(fs::read(self.layout.console())).map_err(on(&self.layout.console()))?;
        Ok(String::from_utf8_lossy(&printed.unwrap_or_default()).into_owned())
    }

    /// Starts it; nothing happens if it is running.
    pub fn power_on(&self) -> Result<()> {
        power::start(&self.layout, &self.spec)
    }

    /// Pulls the plug: every process is gone at once and the disk stays as it is. It stays down until powered on.
    pub fn kill(&self) -> Result<()> {
        power::kill(&self.layout)
    }

    /// Shuts it down in good order (SIGTERM to everything; after ten seconds as [`Self::kill`]).
    pub fn power_off(&self) -> Result<()> {
        power::shut_down(&self.layout)
    }

    /// Shuts it down in good order and starts it again, with the same disk and address.
    pub fn reboot(&self) -> Result<()> {
        self.power_off()?;
        self.power_on()
    }

    /// Stops all its processes where they are, as a computer does that hangs. Its connections stay open and silent.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the processes cannot be stopped.
    pub fn freeze(&self) -> Result<()> {
        processes::stop_all(&self.layout)
    }

    /// Lets a frozen machine go on.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the processes cannot be continued.
    pub fn thaw(&self) -> Result<()> {
        processes::continue_all(&self.layout)
    }

    /// Cuts it off from everything: packets are dropped in both directions until [`Self::reconnect`], also across a
    /// reboot, since it is the network that is broken.
    pub fn cut_off(&self) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::everything())
    }

    /// Cuts it off from one other address (a machine's, or the bridge's), in both directions, in addition to what it is
    /// cut off from already. Where both have IPv6, it is the one that this address stands for.
    pub fn cut_off_from(&self, peer: Ipv4Addr) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::read(&self.layout)?.and(peer))
    }

    /// Cuts one way of its network, in place of every other cut.
    pub fn cut_off_one_way(&self, way: Way) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::of(way))
    }

    /// Loses so many of a hundred packets that are sent to it, in place of every cut.
    ///
    /// # Errors
    /// If it is more than 100, or the rules are refused.
    pub fn lose_packets(&self, percent: u8) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::losing(percent)?)
    }

    /// Ends every cut of this machine, and every loss.
    pub fn reconnect(&self) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::none())
    }

    /// Pulls the plug, loses what lies under `/var/lib/etcd`, and starts it again if it was running. The rest of the
    /// disk stays: it is a data disk that was lost, and cloud-init does not run the bootstrap data a second time.
    pub fn rob_disk(&self) -> Result<()> {
        let was_running = self.is_running();
        self.kill()?;
        disk::rob(&self.layout)?;
        if was_running { self.power_on() } else { Ok(()) }
    }

    /// Deletes etcd's data directory as a person does, with `rm`. The machine goes on running, and so does its etcd with the
    /// files that it has open. Of a machine that is off, the directory's content is removed.
    pub fn delete_data(&self) -> Result<()> {
        if !self.is_running() {
            return disk::rob(&self.layout);
        }
        check("rm", Ok(self.exec(&["rm", "-rf", &format!("/{}", disk::ETCD_DATA)])?))
    }

    /// Where etcd's data directory lies, to be read from outside. Nobody but the machine may write there while it runs.
    #[must_use]
    pub fn etcd_data(&self) -> PathBuf {
        self.layout.upper(disk::ETCD_DATA)
    }

    /// Pulls the plug, changes one byte of etcd's log, as a disk does that is going to fail, and starts the machine again if it
    /// was running.
    pub fn corrupt_log(&self) -> Result<()> {
        let was_running = self.is_running();
        self.kill()?;
        disk::corrupt_log(&self.layout)?;
        if was_running { self.power_on() } else { Ok(()) }
    }

    /// Saves a copy of etcd's data directory, in place of the one saved before. A running machine stands still meanwhile,
    /// so the copy is what a power cut would have left.
    pub fn save_data(&self) -> Result<()> {
        if !self.is_running() {
            return disk::save_data(&self.layout);
        }
        self.freeze()?;
        let saved = disk::save_data(&self.layout);
        self.thaw()?;
        saved
    }

    /// Where the copy lies that [`Self::save_data`] has saved.
    #[must_use]
    pub fn saved_data(&self) -> PathBuf {
        self.layout.saved_data()
    }

    /// Pulls the plug, replaces etcd's data by the saved copy, and starts the machine again if it was running.
    ///
    /// # Errors
    /// [`Error::NothingSaved`], or if the machine cannot be stopped or started, or the data cannot be written.
    pub fn put_back_data(&self) -> Result<()> {
        if !self.layout.saved_data().exists() {
            return Err(Error::NothingSaved(self.layout.label().to_owned()));
        }
        let was_running = self.is_running();
        self.kill()?;
        disk::put_back_data(&self.layout)?;
        if was_running { self.power_on() } else { Ok(()) }
    }

    /// Runs the commands of the bootstrap data a second time, as a person does who wants to mend a machine, and waits for
    /// them at most `time`.
    ///
    /// # Errors
    /// As [`Self::exec`]. That a command fails, or time is up, is in the exit status.
    pub fn rerun_bootstrap(&self, time: Duration) -> Result<Output> {
        let seconds = time.as_secs().to_string();
        // The contract's directory lies in memory, and went with the last boot.
        let commands = "mkdir -p /run/cluster-api && sh /var/lib/cloud/instance/scripts/runcmd";
        self.exec(&["timeout", &seconds, "sh", "-c", commands])
    }

    /// Runs a program inside, as root, and waits for it.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the machine's namespaces cannot be entered. That the program itself fails is in its
    /// exit status.
    pub fn exec<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Result<Output> {
        processes::exec(&self.layout, command)?.output().map_err(on(Path::new("nsenter")))
    }

    /// As [`Self::exec`], for a caller that wants to connect the program's input and output itself.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Result<std::process::Command> {
        processes::exec(&self.layout, command)
    }

    /// Ends it and removes every trace of it.
    pub fn destroy(self) -> Result<()> {
        Machines::open(self.state_dir).destroy(&self.spec.namespace, &self.spec.name)
    }
}

/// Taken while a machine is started or ended, by whichever process does it.
fn exclusive(layout: &Layout) -> Result<File> {
    let path = layout.lock();
    let file = File::create(&path).map_err(on(&path))?;
    file.lock().map_err(on(&path))?;
    Ok(file)
}

/// Whether a program has done what it was to do.
fn check(program: &str, output: io::Result<Output>) -> Result<()> {
    let output = output.map_err(|error| failed(program, &error.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(program, &String::from_utf8_lossy(&output.stderr))) }
}

fn failed(program: &str, message: &str) -> Error {
    Error::Program { program: program.to_owned(), message: message.trim().to_owned() }
}
