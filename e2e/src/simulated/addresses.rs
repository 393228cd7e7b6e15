//! Which addresses of the network are in use, and who owns them.

use local_infrastructure::address::Subnet;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Addresses by owner.
pub(super) struct Addresses {
    subnet: Subnet,
    taken: BTreeSet<Ipv4Addr>,
    by_owner: HashMap<String, Ipv4Addr>,
    last: Option<Ipv4Addr>,
}

impl Addresses {
    pub(super) fn of(subnet: Subnet) -> Self {
        Self { subnet, taken: BTreeSet::new(), by_owner: HashMap::new(), last: None }
    }

    /// The address that `owner` has or gets; `None` if all are in use.
    pub(super) fn reserve(&mut self, owner: &str) -> Option<Ipv4Addr> {
        if let Some(address) = self.by_owner.get(owner) {
            return Some(*address);
        }
        let address = self.subnet.allocate(&self.taken, self.last)?;
        self.taken.insert(address);
        self.by_owner.insert(owner.to_owned(), address);
        self.last = Some(address);
        Some(address)
    }

    pub(super) fn release(&mut self, owner: &str) {
        if let Some(address) = self.by_owner.remove(owner) {
            self.taken.remove(&address);
        }
    }

    pub(super) fn subnet(&self) -> &Subnet {
        &self.subnet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_keeps_its_address_and_a_released_one_rests() {
        let mut addresses = Addresses::of("10.78.0.0/16".parse().unwrap());
        let first = addresses.reserve("a").unwrap();
        assert_eq!(addresses.reserve("a"), Some(first));
        addresses.release("a");
        assert_ne!(addresses.reserve("b").unwrap(), first);
    }
}
