//! What machines are made of. The controllers know machines and their addresses only through it, so that something else
//! can replace the kernel's namespaces.

use crate::{
    address::{IpFamily, Subnet},
    events::Events,
    machine::{Error, Machine, MachineSpec, Machines, Result, machine_owner, on},
    observation::{Local, UserData},
    status::console_end,
};
use std::{net::Ipv4Addr, path::PathBuf};

/// A machine to make.
#[derive(Clone, Debug)]
pub struct NewMachine {
    /// Namespace of its LocalMachine.
    pub namespace: String,
    /// Name of its LocalMachine.
    pub name: String,
    /// UID of its LocalMachine.
    pub uid: String,
    /// The machine's host name.
    pub host_name: String,
    /// The IP family of the machine's addresses.
    pub ip_family: IpFamily,
    /// The user data that it boots with.
    pub user_data: UserData,
}

/// What machines are made of. Calls may block, except for [`Hardware::look`], which every reconcile makes. A call fails
/// if it cannot do what it promises.
pub trait Hardware: Send + Sync + 'static {
    /// The machine, if it exists. From then on, the controller is notified of its changes.
    fn look(&self, namespace: &str, name: &str) -> Result<Option<Local>>;

    /// Makes a machine, unless it exists, and starts it. This is one call, so that nothing comes between a machine with
    /// an address and its boot.
    fn create(&self, new: NewMachine) -> Result<()>;

    /// Starts a machine that was made but not started.
    fn start(&self, namespace: &str, name: &str) -> Result<()>;

    /// Removes a machine and all that belongs to it. Nothing happens if it does not exist.
    fn destroy(&self, namespace: &str, name: &str) -> Result<()>;

    /// The address of `owner`. Reserves one if it has none yet.
    ///
    /// # Errors
    /// If none is free.
    fn reserve(&self, owner: &str) -> Result<Ipv4Addr>;

    /// Makes the address of `owner` available again. Nothing happens if it has none.
    fn release(&self, owner: &str) -> Result<()>;
}

/// Machines made of the kernel's namespaces.
pub(crate) struct Namespaces {
    /// The machines of the state directory.
    pub(crate) machines: Machines,
    /// The image that machines start from.
    pub(crate) image_dir: PathBuf,
    /// The bridge that machines are plugged into.
    pub(crate) bridge: String,
    /// The bridge's network.
    pub(crate) subnet: Subnet,
    /// This program.
    pub(crate) program: PathBuf,
    /// Reports changes of machines.
    pub(crate) events: Events,
}

impl Hardware for Namespaces {
    /// Watches the machine's directory before it reads it, so that it misses no later change.
    fn look(&self, namespace: &str, name: &str) -> Result<Option<Local>> {
        let machine = match self.machines.get(namespace, name) {
            Err(Error::NotFound(_)) => return Ok(None),
            other => other?,
        };
        self.events.watch(machine.directory(), namespace, name).map_err(on(machine.directory()))?;
        facts(&machine).map(Some)
    }

    fn create(&self, new: NewMachine) -> Result<()> {
        let NewMachine { namespace, name, uid, host_name, ip_family, user_data } = new;
        let address = self.reserve(&machine_owner(&namespace, &name))?;
        let spec = MachineSpec {
            namespace,
            name,
            uid,
            host_name,
            address,
            ip_family,
            prefix_length: self.subnet.prefix_length(),
            gateway: self.subnet.gateway(),
            bridge: self.bridge.clone(),
            image_dir: self.image_dir.clone(),
            program: self.program.clone(),
        };
        self.machines.create(spec, &user_data.0)?.power_on()
    }

    fn start(&self, namespace: &str, name: &str) -> Result<()> {
        self.machines.get(namespace, name)?.power_on()
    }

    fn destroy(&self, namespace: &str, name: &str) -> Result<()> {
        self.machines.destroy(namespace, name)
    }

    fn reserve(&self, owner: &str) -> Result<Ipv4Addr> {
        self.machines.reservations().reserve(&self.subnet, owner)
    }

    fn release(&self, owner: &str) -> Result<()> {
        self.machines.reservations().release(owner)
    }
}

fn facts(machine: &Machine) -> Result<Local> {
    let bootstrap = machine.bootstrap()?;
    let failed = bootstrap.as_ref().is_some_and(|result| !result.succeeded);
    Ok(Local {
        address: machine.ip(),
        host_name: machine.spec().host_name.clone(),
        was_started: machine.was_started(),
        powered_on: machine.is_powered_on(),
        running: machine.is_running(),
        bootstrap,
        console_end: if failed { console_end(&machine.console()?) } else { String::new() },
    })
}
