//! All simulated machines.

use super::addresses::Addresses;
use super::bootstrap_data::{BootstrapData, Role};
use super::ensemble::{Ensemble, State};
use super::server::{PROTOCOLS, Server};
use crate::tls::{self, Authority};
use anyhow::{Context, Result};
use futures::Stream;
use local_infrastructure::address::Subnet;
use local_infrastructure::hardware::{Hardware, NewMachine};
use local_infrastructure::machine::{self, Bootstrap};
use local_infrastructure::observation::Local;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_rustls::TlsAcceptor;

/// How long a machine takes to boot, until etcd starts.
const BOOTS: Duration = Duration::from_millis(200);
/// How long a learner takes to receive all data.
const CATCHES_UP: Duration = Duration::from_millis(500);
/// How many changes may wait for their receiver.
const CHANGES: usize = 16_384;

/// Namespace and name of a machine.
type Key = (String, String);

/// The machines in the memory of this process. A clone shares them.
#[derive(Clone)]
pub struct Fleet(Arc<Shared>);

struct Shared {
    machines: Mutex<Machines>,
    changes: broadcast::Sender<Key>,
    catches_up: Duration,
}

struct Machines {
    by_key: HashMap<Key, Machine>,
    by_address: HashMap<Ipv4Addr, Seat>,
    addresses: Addresses,
    frozen: BTreeSet<Ipv4Addr>,
}

struct Machine {
    address: Ipv4Addr,
    host_name: String,
    bootstrap: Option<Bootstrap>,
}

/// A member, and the etcd cluster that it is in.
#[derive(Clone)]
struct Seat {
    ensemble: Arc<Mutex<Ensemble>>,
    id: u64,
}

impl Fleet {
    /// A fleet without machines. They get their addresses from `subnet`. This world has to [answer](super::serve_at) at
    /// them.
    #[must_use]
    pub fn new(subnet: Subnet) -> Self {
        Self::with_learners_for(CATCHES_UP, subnet)
    }

    /// The same, with another time that a learner takes to receive all data.
    #[must_use]
    pub fn with_learners_for(catches_up: Duration, subnet: Subnet) -> Self {
        let (by_key, by_address) = (HashMap::new(), HashMap::new());
        let machines = Machines { by_key, by_address, addresses: Addresses::of(subnet), frozen: BTreeSet::new() };
        let changes = broadcast::Sender::new(CHANGES);
        Self(Arc::new(Shared { machines: Mutex::new(machines), changes, catches_up }))
    }

    /// The machines that change from now on.
    pub fn changes(&self) -> impl Stream<Item = Key> + Send + 'static {
        futures::stream::unfold(self.0.changes.subscribe(), async |mut changes| {
            loop {
                match changes.recv().await {
                    Ok(key) => return Some((key, changes)),
                    Err(RecvError::Lagged(missed)) => tracing::error!(missed, "changes of machines were not looked at"),
                    Err(RecvError::Closed) => return None,
                }
            }
        })
    }

    /// Freezes the machines with these addresses, and thaws all others.
    pub fn freeze_only(&self, frozen: &BTreeSet<Ipv4Addr>) {
        let mut machines = self.machines();
        if machines.frozen == *frozen {
            return;
        }
        let before = std::mem::replace(&mut machines.frozen, frozen.clone());
        for address in before.symmetric_difference(frozen) {
            if let Some(seat) = machines.by_address.get(address) {
                seat.set(if frozen.contains(address) { State::Frozen } else { State::Answers });
            }
        }
    }

    fn machines(&self) -> MutexGuard<'_, Machines> {
        self.0.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first boot of a machine, until its member is a voter.
    async fn boot(self, key: Key, address: Ipv4Addr, user_data: Vec<u8>) {
        let begun = Instant::now();
        tokio::time::sleep(BOOTS).await;
        let errors = match self.become_member(&key, address, &user_data).await {
            Ok(()) => Vec::new(),
            Err(error) => vec![format!("{error:#}")],
        };
        let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Some(machine) = self.machines().by_key.get_mut(&key) {
            machine.bootstrap = Some(Bootstrap { succeeded: errors.is_empty(), errors, milliseconds });
        }
        // While the controllers restart, nothing receives this. They then read all machines anyway.
        let _ = self.0.changes.send(key);
    }

    async fn become_member(&self, key: &Key, address: Ipv4Addr, user_data: &[u8]) -> Result<()> {
        let data = BootstrapData::read(user_data).context("the bootstrap data")?;
        let tls = acceptor(&data, address).context("TLS")?;
        let listener = TcpListener::bind((address, api::names::CLIENT_PORT)).await.context("listen")?;
        let learner = data.role != Role::Init;
        let seat = {
            let mut machines = self.machines();
            // The machine has been destroyed meanwhile.
            if !machines.by_key.contains_key(key) {
                return Ok(());
            }
            let ensemble = match &data.role {
                Role::Init => Arc::new(Mutex::new(Ensemble::new())),
                Role::Join(members) => {
                    let found = members.iter().find_map(|member| machines.by_address.get(member));
                    found.context("there is no etcd to join")?.ensemble.clone()
                }
            };
            let (id, state) = lock(&ensemble).add(&data.name, address, learner);
            let seat = Seat { ensemble, id };
            tokio::spawn(Server { tls, ensemble: seat.ensemble.clone(), id, state }.run(listener));
            machines.by_address.insert(address, seat.clone());
            if machines.frozen.contains(&address) {
                seat.set(State::Frozen);
            }
            seat
        };
        if learner {
            tokio::time::sleep(self.0.catches_up).await;
            lock(&seat.ensemble).promote(seat.id);
        }
        Ok(())
    }
}

impl Seat {
    fn set(&self, state: State) {
        lock(&self.ensemble).set(self.id, state);
    }
}

fn lock(ensemble: &Mutex<Ensemble>) -> MutexGuard<'_, Ensemble> {
    ensemble.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The member's side of TLS, with a certificate of its cluster's CA. Clients have to present one of the same CA.
fn acceptor(data: &BootstrapData, address: Ipv4Addr) -> Result<TlsAcceptor> {
    let authority = Authority::from_pem(&data.authority, &data.authority_key)?;
    tls::acceptor(&authority.member(&data.name, address)?, Some(&data.authority), &PROTOCOLS)
}

/// The name of a machine as the owner of its address.
fn owner(namespace: &str, name: &str) -> String {
    format!("machine/{namespace}/{name}")
}

impl Hardware for Fleet {
    fn look(&self, namespace: &str, name: &str) -> machine::Result<Option<Local>> {
        let machines = self.machines();
        let found = machines.by_key.get(&(namespace.to_owned(), name.to_owned()));
        Ok(found.map(|machine| Local {
            address: machine.address.into(),
            host_name: machine.host_name.clone(),
            was_started: true,
            powered_on: true,
            running: true,
            bootstrap: machine.bootstrap.clone(),
            console_end: String::new(),
        }))
    }

    /// Must be called inside a tokio runtime.
    fn create(&self, new: NewMachine) -> machine::Result<()> {
        let NewMachine { namespace, name, host_name, user_data, .. } = new;
        let address = self.reserve(&owner(&namespace, &name))?;
        let key = (namespace, name);
        let machine = Machine { address, host_name, bootstrap: None };
        if self.machines().by_key.insert(key.clone(), machine).is_none() {
            tokio::spawn(self.clone().boot(key, address, user_data.0));
        }
        Ok(())
    }

    /// Machines start when they are made.
    fn start(&self, _: &str, _: &str) -> machine::Result<()> {
        Ok(())
    }

    fn destroy(&self, namespace: &str, name: &str) -> machine::Result<()> {
        let mut machines = self.machines();
        if let Some(machine) = machines.by_key.remove(&(namespace.to_owned(), name.to_owned())) {
            if let Some(seat) = machines.by_address.remove(&machine.address) {
                seat.set(State::Ended);
            }
            machines.addresses.release(&owner(namespace, name));
        }
        Ok(())
    }

    fn reserve(&self, owner: &str) -> machine::Result<Ipv4Addr> {
        let addresses = &mut self.machines().addresses;
        addresses.reserve(owner).ok_or_else(|| machine::Error::NoAddress(addresses.subnet().to_string()))
    }

    fn release(&self, owner: &str) -> machine::Result<()> {
        self.machines().addresses.release(owner);
        Ok(())
    }
}
