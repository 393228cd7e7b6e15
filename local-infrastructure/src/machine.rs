//! Machines made of the kernel's namespaces, without Kubernetes: the controller makes them, and a person or a scenario
//! acts on them.
//!
//! All files of a machine are in one directory of the state directory. So any process with access to the state
//! directory can act on the machine, and machines outlive the process that made them. All calls block until they are
//! done.

mod disk;
mod files;
mod network;
mod power;
mod processes;
mod spec;

pub(crate) use disk::{in_user_namespace, overlaid};
pub(crate) use files::{if_there, names, on, write_atomic, write_in};
pub use network::Way;
pub(crate) use network::{apply_partition, configure_inside, connect};
pub(crate) use processes::Process;
pub(crate) use spec::{BOOTSTRAP, Layout, PROCESS};
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
        /// The program.
        program: String,
        /// Its message.
        message: String,
    },
    /// A file of the state directory, or a file that a machine is made of, could not be used.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An operation on the machine's processes did not succeed.
    #[error("machine {machine}: {what}")]
    Process {
        /// The machine.
        machine: String,
        /// What did not happen.
        what: String,
    },
}

/// Result of something done to a machine.
pub type Result<T> = std::result::Result<T, Error>;

/// All machines of one state directory. Each operation fails if this directory cannot be used.
#[derive(Clone, Debug)]
pub struct Machines {
    state_dir: PathBuf,
}

impl Machines {
    /// The machines with their state in `state_dir`, which need not exist yet. It must be on another file system than
    /// this computer's `/usr`, `/etc` and `/var`, such as a tmpfs, because machines' disks are overlays of those.
    #[must_use]
    pub fn open(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into() }
    }

    /// The reserved addresses of this network.
    #[must_use]
    pub fn reservations(&self) -> Reservations {
        Reservations::open(&self.state_dir)
    }

    /// All machines that exist, in the order of namespace and name.
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
    /// [`Error::NotFound`] if it does not exist.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Machine> {
        let layout = self.layout(namespace, name);
        let spec = files::read_json(&layout.spec())?.ok_or_else(|| Error::NotFound(layout.label().to_owned()))?;
        Ok(Machine { state_dir: self.state_dir.clone(), layout, spec })
    }

    /// Makes a machine with an empty disk, or returns the existing one. Does not start it.
    pub fn create(&self, spec: MachineSpec, user_data: &[u8]) -> Result<Machine> {
        let layout = self.layout(&spec.namespace, &spec.name);
        match self.get(&spec.namespace, &spec.name) {
            Err(Error::NotFound(_)) => {}
            known => return known,
        }
        disk::prepare(&layout, &spec, user_data)?;
        // This is written last: if a process dies before, the incomplete machine is made again.
        let json = serde_json::to_vec_pretty(&spec).map_err(io::Error::from).map_err(on(&layout.spec()))?;
        write_atomic(&layout.spec(), &json)?;
        Ok(Machine { state_dir: self.state_dir.clone(), layout, spec })
    }

    /// Prepares a fault: the machine with this name, which may not exist yet, is created as usual but never boots. It
    /// has an address, and nothing in it ever runs. The fault holds until [`Self::clear_faults`], and is read each time
    /// the machine starts.
    pub fn fault_no_boot(&self, namespace: &str, name: &str) -> Result<()> {
        write_atomic(&self.faults(namespace, name).join("no-boot"), b"")
    }

    /// Prepares a fault: the machine with this name, which may not exist yet, waits for this time before it boots. The
    /// fault holds until [`Self::clear_faults`], and is read each time the machine starts.
    pub fn fault_boot_delay(&self, namespace: &str, name: &str, delay: Duration) -> Result<()> {
        write_atomic(&self.faults(namespace, name).join("boot-delay"), delay.as_secs_f64().to_string().as_bytes())
    }

    /// Removes the faults that are prepared for a machine. If a machine did not boot because of a fault, it boots after
    /// a reboot.
    pub fn clear_faults(&self, namespace: &str, name: &str) -> Result<()> {
        files::remove_tree(&self.faults(namespace, name))
    }

    fn faults(&self, namespace: &str, name: &str) -> PathBuf {
        self.layout(namespace, name).faults().to_owned()
    }

    /// The paths of a machine's files.
    pub(crate) fn layout(&self, namespace: &str, name: &str) -> Layout {
        Layout::new(&self.state_dir, namespace, name)
    }

    /// Ends a machine and removes everything that belongs to it, whatever its state. Nothing happens if it does not
    /// exist.
    ///
    /// # Errors
    /// If something cannot be removed. Another call continues where this one stopped.
    pub fn destroy(&self, namespace: &str, name: &str) -> Result<()> {
        let layout = self.layout(namespace, name);
        if layout.directory().exists() {
            power::destroy(&layout)?;
        }
        self.reservations().release(&machine_owner(namespace, name))?;
        // The directory is removed only if this was the last machine of the namespace. A race with a new machine is not
        // an error.
        let _ = layout.directory().parent().map(fs::remove_dir);
        Ok(())
    }
}

/// The owner of a machine's address in the reservations.
pub(crate) fn machine_owner(namespace: &str, name: &str) -> String {
    format!("machine/{namespace}/{name}")
}

/// A machine that exists, running or not. An operation on it fails if its files cannot be used, or if its processes or
/// its network do not react.
#[derive(Clone, Debug)]
pub struct Machine {
    state_dir: PathBuf,
    layout: Layout,
    spec: MachineSpec,
}

impl Machine {
    /// The spec that it was made from.
    #[must_use]
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The address that is reserved for it. With IPv4, this is its own address.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.spec.address
    }

    /// Its address on the bridge.
    #[must_use]
    pub fn ip(&self) -> IpAddr {
        self.spec.ip()
    }

    /// The directory of all its files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.layout.directory()
    }

    /// Whether its first process exists. A frozen machine is running too.
    #[must_use]
    pub fn is_running(&self) -> bool {
        power::running(&self.layout).is_some()
    }

    /// Whether it should be running: false after a kill or a power-off.
    #[must_use]
    pub fn is_powered_on(&self) -> bool {
        self.layout.powered_on()
    }

    /// Whether it has ever been started.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.layout.boots() > 0
    }

    /// The process ID of its first process, in the caller's world.
    #[must_use]
    pub fn first_process(&self) -> Option<i32> {
        power::running(&self.layout).map(|process| process.pid)
    }

    /// The result of its bootstrap, once it has ended.
    pub fn bootstrap(&self) -> Result<Option<Bootstrap>> {
        self.layout.read_bootstrap()
    }

    /// All output that it has printed since it was made.
    pub fn console(&self) -> Result<String> {
        let printed = if_there(fs::read(self.layout.console())).map_err(on(&self.layout.console()))?;
        Ok(String::from_utf8_lossy(&printed.unwrap_or_default()).into_owned())
    }

    /// Starts it; nothing happens if it is running.
    pub fn power_on(&self) -> Result<()> {
        power::start(&self.layout, &self.spec)
    }

    /// Pulls the plug: all processes end immediately, and the disk stays as it is. The machine stays down until it is
    /// powered on.
    pub fn kill(&self) -> Result<()> {
        power::kill(&self.layout)
    }

    /// Shuts it down in good order: sends SIGTERM to all processes, and does the same as [`Self::kill`] after ten
    /// seconds.
    pub fn power_off(&self) -> Result<()> {
        power::shut_down(&self.layout)
    }

    /// Shuts it down in good order and starts it again, with the same disk and address.
    pub fn reboot(&self) -> Result<()> {
        self.power_off()?;
        self.power_on()
    }

    /// Stops all its processes, like a computer that hangs. Its connections stay open and silent.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the processes cannot be stopped.
    pub fn freeze(&self) -> Result<()> {
        processes::stop_all(&self.layout)
    }

    /// Continues a frozen machine.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the processes cannot be continued.
    pub fn thaw(&self) -> Result<()> {
        processes::continue_all(&self.layout)
    }

    /// Cuts it off from everything: packets in both directions are dropped until [`Self::reconnect`], even after a
    /// reboot, because it is the network that is broken.
    pub fn cut_off(&self) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::everything())
    }

    /// Cuts it off from one other address (a machine's, or the bridge's), in both directions, in addition to existing
    /// cuts. If both have IPv6, this applies to the IPv6 address that corresponds to this address.
    pub fn cut_off_from(&self, peer: Ipv4Addr) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::read(&self.layout)?.and(peer))
    }

    /// Cuts one direction of its network, in place of all other cuts.
    pub fn cut_off_one_way(&self, way: Way) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::of(way))
    }

    /// Loses this percentage of the packets that are sent to it, in place of all cuts.
    ///
    /// # Errors
    /// If it is more than 100, or the rules cannot be set.
    pub fn lose_packets(&self, percent: u8) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::losing(percent)?)
    }

    /// Ends every cut of this machine, and every loss.
    pub fn reconnect(&self) -> Result<()> {
        network::partition(&self.layout, &self.spec, &network::Partition::none())
    }

    /// Pulls the plug, removes everything below `/var/lib/etcd`, and starts the machine again if it was running. The
    /// rest of the disk stays, as if only a data disk was lost, so cloud-init does not run the bootstrap data a second
    /// time.
    pub fn rob_disk(&self) -> Result<()> {
        let was_running = self.is_running();
        self.kill()?;
        disk::rob(&self.layout)?;
        if was_running { self.power_on() } else { Ok(()) }
    }

    /// Deletes etcd's data directory with `rm`, as a person would. The machine continues to run, and so does its etcd,
    /// with the files that it has open. If the machine is off, only the content of the directory is removed.
    pub fn delete_data(&self) -> Result<()> {
        if !self.is_running() {
            return disk::rob(&self.layout);
        }
        check("rm", Ok(self.exec(&["rm", "-rf", &format!("/{}", disk::ETCD_DATA)])?))
    }

    /// The path of etcd's data directory, for reads from outside. While the machine runs, only the machine may write
    /// there.
    #[must_use]
    pub fn etcd_data(&self) -> PathBuf {
        self.layout.upper(disk::ETCD_DATA)
    }

    /// Pulls the plug, changes one byte of etcd's log, like a failing disk, and starts the machine again if it was
    /// running.
    pub fn corrupt_log(&self) -> Result<()> {
        let was_running = self.is_running();
        self.kill()?;
        disk::corrupt_log(&self.layout)?;
        if was_running { self.power_on() } else { Ok(()) }
    }

    /// Saves a copy of etcd's data directory, in place of the previous copy. A running machine is frozen meanwhile, so
    /// the copy is what a power failure would have left.
    pub fn save_data(&self) -> Result<()> {
        if !self.is_running() {
            return disk::save_data(&self.layout);
        }
        self.freeze()?;
        let saved = disk::save_data(&self.layout);
        self.thaw()?;
        saved
    }

    /// The path of the copy that [`Self::save_data`] has made.
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

    /// Runs the commands of the bootstrap data a second time, as a person would to repair a machine. Waits for them for
    /// at most `time`.
    ///
    /// # Errors
    /// The same as for [`Self::exec`]. If a command fails, or time is up, the exit status says so.
    pub fn rerun_bootstrap(&self, time: Duration) -> Result<Output> {
        let seconds = time.as_secs().to_string();
        // The directory of the contract is in memory, so it was lost at the last boot.
        let commands = "mkdir -p /run/cluster-api && sh /var/lib/cloud/instance/scripts/runcmd";
        self.exec(&["timeout", &seconds, "sh", "-c", commands])
    }

    /// Runs a program inside, as root, and waits for it.
    ///
    /// # Errors
    /// [`Error::NotRunning`], or if the machine's namespaces cannot be entered. If the program itself fails, its exit
    /// status says so.
    pub fn exec<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Result<Output> {
        processes::exec(&self.layout, command)?.output().map_err(on(Path::new("nsenter")))
    }

    /// The same as [`Self::exec`], for a caller that connects the program's input and output itself.
    ///
    /// # Errors
    /// [`Error::NotRunning`].
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, command: &[S]) -> Result<std::process::Command> {
        processes::exec(&self.layout, command)
    }

    /// Ends it and removes everything that belongs to it.
    pub fn destroy(self) -> Result<()> {
        Machines::open(self.state_dir).destroy(&self.spec.namespace, &self.spec.name)
    }
}

/// The lock that a process holds while it starts or ends a machine.
fn exclusive(layout: &Layout) -> Result<File> {
    let path = layout.lock();
    let file = File::create(&path).map_err(on(&path))?;
    file.lock().map_err(on(&path))?;
    Ok(file)
}

/// Checks whether a program has succeeded.
fn check(program: &str, output: io::Result<Output>) -> Result<()> {
    let output = output.map_err(|error| failed(program, &error.to_string()))?;
    if output.status.success() { Ok(()) } else { Err(failed(program, &String::from_utf8_lossy(&output.stderr))) }
}

fn failed(program: &str, message: &str) -> Error {
    Error::Program { program: program.to_owned(), message: message.trim().to_owned() }
}
