//! The command line.

use crate::{
    crd,
    image::{self, Parts},
    init::Init,
    machine::{Machine, Machines, Way},
    run::Run,
    start::Start,
};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::{
    fs,
    io::{Write, stderr, stdout},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

/// Machines for Cluster API made of Linux namespaces on this computer.
#[derive(Debug, Parser)]
#[command(name = "local-infrastructure", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the program does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the controllers of LocalClusters and LocalMachines.
    Run(Run),
    /// Prints the definitions of the kinds, or writes them into a directory.
    Crds(CrdsArguments),
    /// Looks at machines, and does to them what happens to machines.
    Machine(MachineArguments),
    /// Makes the image that machines start from.
    Image(ImageArguments),
    /// Starts a machine; called in its new namespaces.
    #[command(hide = true)]
    MachineStart(Start),
    /// The first process of a machine.
    #[command(hide = true)]
    MachineInit(Init),
}

/// Arguments of `crds`.
#[derive(Debug, clap::Args)]
pub struct CrdsArguments {
    /// Writes one file for each kind into this directory.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// Arguments of `machine`.
#[derive(Debug, clap::Args)]
pub struct MachineArguments {
    /// The state directory that `run` was given. It is seen from inside the world that the machines are in.
    #[arg(long, env = "LOCAL_INFRASTRUCTURE_STATE_DIR", global = true, default_value = "/run/local-infrastructure")]
    pub state_dir: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// The machine that something is done to.
#[derive(Debug, clap::Args)]
pub struct Target {
    /// `<namespace>/<name>` of its LocalMachine.
    pub machine: Name,
}

/// What can be done with machines. A machine is named as `<namespace>/<name>` of its LocalMachine.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// All machines with address, power, and how their bootstrap data ended.
    List,
    /// Everything the machine has printed.
    Console(Target),
    /// Pulls the plug; it stays down until power-on.
    Kill(Target),
    /// Stops all its processes where they are.
    Freeze(Target),
    /// Lets a frozen machine go on.
    Thaw(Target),
    /// Cuts it off from the network, or from single addresses.
    CutOff {
        /// Which machine.
        #[command(flatten)]
        target: Target,
        /// Only from this address; may be given several times.
        #[arg(long)]
        from: Vec<Ipv4Addr>,
        /// Only this way, in place of every other cut.
        #[arg(long, conflicts_with = "from")]
        only: Option<Way>,
    },
    /// Loses packets that are sent to it, in place of every cut.
    LosePackets {
        /// Which machine.
        #[command(flatten)]
        target: Target,
        /// How many of a hundred.
        percent: u8,
    },
    /// Ends every cut and every loss.
    Reconnect(Target),
    /// Shuts it down in good order and starts it again.
    Reboot(Target),
    /// Shuts it down in good order; it stays down until power-on.
    PowerOff(Target),
    /// Starts it.
    PowerOn(Target),
    /// Loses what lies under /var/lib/etcd; if the machine was running it starts again.
    RobDisk(Target),
    /// Deletes /var/lib/etcd; the machine goes on running.
    DeleteData(Target),
    /// Changes one byte of etcd's log; if the machine was running it starts again.
    CorruptLog(Target),
    /// Saves a copy of /var/lib/etcd, in place of the one saved before.
    SaveData(Target),
    /// Puts the saved copy back in place of /var/lib/etcd; if the machine was running it starts again.
    PutBackData(Target),
    /// Runs the commands of its bootstrap data a second time.
    RerunBootstrap {
        /// Which machine.
        #[command(flatten)]
        target: Target,
        /// How many seconds the commands may take.
        #[arg(long, default_value = "60")]
        seconds: u64,
    },
    /// Runs a program inside, as root.
    Exec {
        /// Which machine.
        #[command(flatten)]
        target: Target,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// Arguments of `image`.
#[derive(Debug, clap::Args)]
pub struct ImageArguments {
    /// The directory to make; it is emptied first.
    #[arg(long)]
    pub out: PathBuf,
    /// The program etcdadm.
    #[arg(long)]
    pub etcdadm: Option<PathBuf>,
    /// A directory of etcd releases, `v<version>/etcd-v<version>-linux-<arch>.tar.gz`.
    #[arg(long)]
    pub etcd_releases: Option<PathBuf>,
    /// Where downloaded things are kept [default: the project's cache].
    #[arg(long)]
    pub cache: Option<PathBuf>,
}

/// Namespace and name of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    namespace: String,
    name: String,
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
        };
        match text.split_once('/') {
            Some((namespace, name)) if part(namespace) && part(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("a machine is named as <namespace>/<name>".to_owned()),
        }
    }
}

/// Runs the command of the command line.
///
/// # Errors
/// They are written for the user at the command line.
pub fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Run(arguments) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(crate::run::run(arguments)).map(|()| ExitCode::SUCCESS)
        }
        Command::Crds(arguments) => crds(arguments.out.as_deref()).map(|()| ExitCode::SUCCESS),
        Command::Machine(arguments) => machine(&Machines::open(arguments.state_dir), arguments.action),
        Command::Image(ImageArguments { out, etcdadm, etcd_releases, cache }) => {
            let cache = cache.unwrap_or_else(image::default_cache);
            image::assemble(&out, &Parts { etcdadm, etcd_releases, cache })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::MachineStart(arguments) => crate::start::start(&arguments).map(|()| ExitCode::SUCCESS),
        Command::MachineInit(arguments) => crate::init::run(&arguments).map(|()| ExitCode::SUCCESS),
    }
}

fn crds(out: Option<&Path>) -> Result<()> {
    for (name, content) in crd::files()? {
        match out {
            None => print!("---\n{content}"),
            Some(directory) => {
                fs::create_dir_all(directory)?;
                let path = directory.join(name);
                fs::write(&path, content).with_context(|| path.display().to_string())?;
            }
        }
    }
    Ok(())
}

fn machine(machines: &Machines, action: Action) -> Result<ExitCode> {
    let get = |target: Target| machines.get(&target.machine.namespace, &target.machine.name);
    match action {
        Action::List => list(machines)?,
        Action::Console(target) => stdout().write_all(get(target)?.console()?.as_bytes())?,
        Action::Kill(target) => get(target)?.kill()?,
        Action::Freeze(target) => get(target)?.freeze()?,
        Action::Thaw(target) => get(target)?.thaw()?,
        Action::CutOff { target, only: Some(way), .. } => get(target)?.cut_off_one_way(way)?,
        Action::LosePackets { target, percent } => get(target)?.lose_packets(percent)?,
        Action::CutOff { target, from, .. } if from.is_empty() => get(target)?.cut_off()?,
        Action::CutOff { target, from, .. } => {
            let machine = get(target)?;
            from.into_iter().try_for_each(|peer| machine.cut_off_from(peer))?;
        }
        Action::Reconnect(target) => get(target)?.reconnect()?,
        Action::Reboot(target) => get(target)?.reboot()?,
        Action::PowerOff(target) => get(target)?.power_off()?,
        Action::PowerOn(target) => get(target)?.power_on()?,
        Action::RobDisk(target) => get(target)?.rob_disk()?,
        Action::DeleteData(target) => get(target)?.delete_data()?,
        Action::CorruptLog(target) => get(target)?.corrupt_log()?,
        Action::SaveData(target) => get(target)?.save_data()?,
        Action::PutBackData(target) => get(target)?.put_back_data()?,
        Action::RerunBootstrap { target, seconds } => {
            let output = get(target)?.rerun_bootstrap(Duration::from_secs(seconds))?;
            stdout().write_all(&output.stdout)?;
            stderr().write_all(&output.stderr)?;
            let code = output.status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
        Action::Exec { target, command } => {
            let status = get(target)?.command(&command)?.status().context("nsenter")?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(machines: &Machines) -> Result<()> {
    let machines = machines.list()?;
    if machines.is_empty() {
        bail!("there are no machines");
    }
    let name = |machine: &Machine| format!("{}/{}", machine.spec().namespace, machine.spec().name);
    let width = machines.iter().map(|machine| name(machine).len()).max().unwrap_or_default();
    println!("{:width$}  {:15}  {:8}  BOOTSTRAP", "MACHINE", "ADDRESS", "POWER");
    for machine in &machines {
        let power = match (machine.is_running(), machine.is_powered_on()) {
            (true, _) => "on",
            (false, true) => "failed",
            (false, false) => "off",
        };
        let bootstrap = match machine.bootstrap()? {
            None => "-".to_owned(),
            Some(result) if result.succeeded => format!("succeeded in {} ms", result.milliseconds),
            Some(result) => format!("failed: {}", result.errors.join("; ")),
        };
        println!("{:width$}  {:15}  {power:8}  {bootstrap}", name(machine), machine.ip());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_machine_is_named_by_namespace_and_name() {
        assert!("default/one".parse::<Name>().is_ok());
        for wrong in ["one", "default/", "/one", "default/../one", "default/..", "a/b/c"] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }
}
