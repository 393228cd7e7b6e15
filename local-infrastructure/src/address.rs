//! Chooses the address of a new machine. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Which addresses a machine has, in the words of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamily {
    /// One of IPv4.
    #[default]
    IPv4,
    /// One of IPv6, and none of IPv4.
    IPv6,
}

/// The network of the machines with IPv6. Their addresses end with an IPv4 address, so a reservation covers both.
const PREFIX_OF_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 0);
/// Length of that network's prefix in bits.
pub const PREFIX_LENGTH_OF_IPV6: u8 = 64;

impl IpFamily {
    /// The address that corresponds to an IPv4 address of the subnet.
    #[must_use]
    pub fn address(self, reserved: Ipv4Addr) -> IpAddr {
        match self {
            Self::IPv4 => reserved.into(),
            Self::IPv6 => Ipv6Addr::from_bits(PREFIX_OF_IPV6.to_bits() | u128::from(reserved.to_bits())).into(),
        }
    }

    /// Whether it is the default.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An IPv4 network, such as `10.77.0.0/16`. The bridge has its first address, which is the machines' gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    network: u32,
    prefix_length: u8,
}

/// Why a text is not a subnet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSubnet {
    /// Not of the form `a.b.c.d/n`.
    #[error("`{0}` is not an IPv4 network such as 10.77.0.0/16")]
    Form(String),
    /// The address has bits set outside the prefix.
    #[error("`{given}` has bits beyond its prefix: the network is {network}")]
    HostBits {
        /// The text.
        given: String,
        /// The network that contains the address.
        network: String,
    },
    /// Too small or too large to hand out addresses from.
    #[error("the prefix of `{0}` must be between /8 and /29")]
    Size(String),
}

/// The first host number for machines. The lower ones are for the bridge, and for anything that a person adds to it.
const FIRST_HOST: u32 = 10;

impl Subnet {
    /// The bridge's address and the machines' gateway: the network's first host.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// Length of the prefix in bits.
    #[must_use]
    pub fn prefix_length(&self) -> u8 {
        self.prefix_length
    }

    fn size(&self) -> u32 {
        1 << (32 - self.prefix_length)
    }

    fn first(&self) -> u32 {
        // A tiny network has no space to spare: all addresses above the gateway are assigned.
        self.network + if self.size() > 4 * FIRST_HOST { FIRST_HOST } else { 2 }
    }

    fn last(&self) -> u32 {
        self.network + self.size() - 2
    }

    /// The first address after `after` that is not `taken`, or the first of all if there is no `after`. The search
    /// wraps around at the end, so that an address rests after its machine is gone, as in most clouds. `None`: all
    /// addresses are taken.
    #[must_use]
    pub fn allocate(&self, taken: &BTreeSet<Ipv4Addr>, after: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let (first, last) = (self.first(), self.last());
        let start =
            after.map(|a| u32::from(a).saturating_add(1)).filter(|a| (first..=last).contains(a)).unwrap_or(first);
        (start..=last).chain(first..start).map(Ipv4Addr::from).find(|address| !taken.contains(address))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix_length)
    }
}

impl FromStr for Subnet {
    type Err = InvalidSubnet;

    fn from_str(text: &str) -> Result<Self, InvalidSubnet> {
        let form = || InvalidSubnet::Form(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(form)?;
        let address = u32::from(Ipv4Addr::from_str(address).map_err(|_| form())?);
        let prefix_length: u8 = length.parse().map_err(|_| form())?;
        if !(8..=29).contains(&prefix_length) {
            return Err(InvalidSubnet::Size(text.to_owned()));
        }
        let network = address & (u32::MAX << (32 - prefix_length));
        let subnet = Self { network, prefix_length };
        if network != address {
            return Err(InvalidSubnet::HostBits { given: text.to_owned(), network: subnet.to_string() });
        }
        Ok(subnet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn subnet(text: &str) -> Subnet {
        text.parse().expect("a valid subnet")
    }

    #[rstest]
    #[case("10.77.0.0", "is not an IPv4 network")]
    #[case("10.77.0/16", "is not an IPv4 network")]
    #[case("10.77.0.0/x", "is not an IPv4 network")]
    #[case("10.77.0.1/16", "the network is 10.77.0.0/16")]
    #[case("10.77.0.0/30", "between /8 and /29")]
    #[case("0.0.0.0/0", "between /8 and /29")]
    fn a_wrong_subnet_says_what_is_wrong(#[case] text: &str, #[case] why: &str) {
        let error = text.parse::<Subnet>().expect_err("invalid").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn an_address_of_ipv6_ends_with_the_reserved_one() {
        let reserved = Ipv4Addr::new(10, 77, 0, 10);
        assert_eq!(IpFamily::IPv4.address(reserved).to_string(), "10.77.0.10");
        assert_eq!(IpFamily::IPv6.address(reserved).to_string(), "fd00:77::a4d:a");
    }

    #[test]
    fn addresses_go_round() {
        let small = subnet("10.0.0.0/29");
        assert_eq!(small.gateway(), Ipv4Addr::new(10, 0, 0, 1));
        let mut taken = BTreeSet::new();
        let mut after = None;
        for expected in [2, 3, 4, 5, 6] {
            let address = small.allocate(&taken, after).expect("room");
            assert_eq!(address, Ipv4Addr::new(10, 0, 0, expected));
            taken.insert(address);
            after = Some(address);
        }
        assert_eq!(small.allocate(&taken, after), None);
        taken.remove(&Ipv4Addr::new(10, 0, 0, 3));
        assert_eq!(small.allocate(&taken, after), Some(Ipv4Addr::new(10, 0, 0, 3)));
    }

    proptest! {
        #[test]
        fn an_allocated_address_is_free_and_inside(
            hosts in proptest::collection::btree_set(0u32..64, 0..64),
            after in proptest::option::of(0u32..80),
        ) {
            let net = subnet("10.1.2.0/26");
            let base = u32::from(Ipv4Addr::new(10, 1, 2, 0));
            let taken: BTreeSet<Ipv4Addr> = hosts.iter().map(|h| Ipv4Addr::from(base + h)).collect();
            let free = (10..=62).filter(|h| !hosts.contains(h)).count();
            match net.allocate(&taken, after.map(|a| Ipv4Addr::from(base + a))) {
                Some(address) => {
                    prop_assert!(!taken.contains(&address));
                    prop_assert!((10..=62).contains(&(u32::from(address) - base)), "{address}");
                }
                None => prop_assert_eq!(free, 0),
            }
        }
    }
}
