//! Which requests a client makes. A seed chooses them, on few keys, so that clients write to the same ones.

use super::record::Outcome;
use super::request::{Op, PREFIX, Request, Txn};
use super::response::Response;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;

/// How many of a hundred requests are of each kind.
const WEIGHTS: [(Kind, u32); 8] = [
    (Kind::Put, 32),
    (Kind::Get, 18),
    (Kind::Range, 8),
    (Kind::Past, 4),
    (Kind::Swap, 20),
    (Kind::PutTwo, 6),
    (Kind::Delete, 6),
    (Kind::Lease, 6),
];
/// The most revisions that a read of the past goes back.
const PAST: i64 = 50;
/// Of a hundred lease requests of a client that has a lease, how many end it.
const REVOCATIONS: u32 = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Get,
    Range,
    Past,
    Swap,
    PutTwo,
    Delete,
    Lease,
}

/// The requests of one client. The same seed and the same answers give the same requests.
#[derive(Debug)]
pub struct Mix {
    random: StdRng,
    client: usize,
    keys: usize,
    /// How many values were chosen. No two writes of a history write the same value, so a value shows which write made
    /// it.
    values: u64,
    /// How many leases were requested.
    leases: i64,
    /// The lease that this client has, if it has one.
    lease: Option<i64>,
    /// The last revision that this client has seen.
    revision: i64,
    /// For each key the revision of the last change that this client has seen.
    seen: HashMap<String, i64>,
}

impl Mix {
    /// The requests of `client`, on `keys` keys.
    pub fn new(seed: u64, client: usize, keys: usize) -> Self {
        // Clients of one history must not make the same requests.
        let random = StdRng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(client as u64));
        Self { random, client, keys: keys.max(1), values: 0, leases: 0, lease: None, revision: 1, seen: HashMap::new() }
    }

    /// The next request.
    pub fn request(&mut self) -> Request {
        match self.kind() {
            Kind::Put => Request::put(self.key(), self.value(), 0),
            Kind::Get => Request::get(self.key()),
            Kind::Range => Request::all(if self.random.random_bool(0.5) { 3 } else { 0 }),
            Kind::Past => Request::past(self.random.random_range((self.revision - PAST).max(1)..=self.revision)),
            Kind::Swap => {
                let key = self.key();
                let expected = self.seen.get(&key).copied().unwrap_or_default();
                Request::swap(&key, expected, self.value())
            }
            Kind::PutTwo => self.put_two(),
            Kind::Delete => Request::delete(self.key()),
            Kind::Lease => self.lease(),
        }
    }

    /// The second try of a write that was not answered. It writes new values, because no value may be written twice.
    /// There is no second try of a read, nor of the end of a lease: etcd refuses that if the lease has ended.
    pub fn again(&mut self, request: &Request) -> Option<Request> {
        match request {
            Request::Txn { txn } if !request.is_read() => {
                let mut txn = txn.clone();
                let branches = [&mut txn.operations_on_success, &mut txn.operations_on_failure];
                for operation in branches.into_iter().flatten() {
                    if let Op::Put { put } = operation {
                        put.value.value = self.value();
                    }
                }
                Some(Request::Txn { txn })
            }
            Request::LeaseGrant { .. } => Some(self.grant()),
            Request::Txn { .. } | Request::Range { .. } | Request::LeaseRevoke { .. } => None,
        }
    }

    /// Learns from the outcome of a request for the next ones.
    pub fn learn(&mut self, request: &Request, outcome: &Outcome) {
        if let Outcome::Ok(response) = outcome {
            self.revision = self.revision.max(response.revision());
        }
        match (request, outcome) {
            // A read of the past says nothing about the present.
            (Request::Range { range }, _) if range.revision != 0 => {}
            // Only a lease that certainly exists is of use, so neither a grant without an answer nor a lease that may
            // have ended.
            (Request::LeaseGrant { lease }, Outcome::Ok(_)) => self.lease = Some(lease.id),
            (Request::LeaseRevoke { .. }, _) => self.lease = None,
            (_, Outcome::Ok(Response::Range { range, .. })) => {
                for key in &range.keys {
                    self.seen.insert(key.key.clone(), key.mod_revision);
                }
            }
            (Request::Txn { txn }, Outcome::Ok(Response::Txn { txn: done, revision })) => {
                self.learn_of(txn, done.failure, *revision);
                for key in done.results.iter().filter_map(|result| result.keys.as_ref()).flatten() {
                    self.seen.insert(key.key.clone(), key.mod_revision);
                }
            }
            _ => {}
        }
    }

    fn learn_of(&mut self, txn: &Txn, failure: bool, revision: i64) {
        let done = if failure { &txn.operations_on_failure } else { &txn.operations_on_success };
        for operation in done {
            match operation {
                Op::Put { put } => {
                    self.seen.insert(put.key.clone(), revision);
                }
                Op::Delete { delete } => {
                    self.seen.remove(&delete.key);
                }
                // A key that is read and not found does not exist. If it is found, `learn` records it.
                Op::Range { range } => {
                    self.seen.remove(&range.start);
                }
            }
        }
    }

    fn kind(&mut self) -> Kind {
        let mut left = self.random.random_range(0..WEIGHTS.iter().map(|(_, weight)| weight).sum::<u32>());
        for (kind, weight) in WEIGHTS {
            if left < weight {
                return kind;
            }
            left -= weight;
        }
        Kind::Put
    }

    /// Writes two keys in one transaction, each with its own value.
    fn put_two(&mut self) -> Request {
        let first = self.random.random_range(0..self.keys);
        let mut puts = vec![Op::put(key_name(first), self.value(), 0)];
        // etcd refuses a transaction that writes a key twice.
        if self.keys > 1 {
            let second = (first + 1) % self.keys;
            puts.push(Op::put(key_name(second), self.value(), 0));
        }
        Request::Txn { txn: Txn { operations_on_success: puts, ..Txn::default() } }
    }

    fn lease(&mut self) -> Request {
        let Some(lease) = self.lease else { return self.grant() };
        if self.random.random_ratio(REVOCATIONS, 100) {
            return Request::revoke(lease);
        }
        Request::put(self.key(), self.value(), lease)
    }

    /// Grants a lease whose ID no other client uses.
    fn grant(&mut self) -> Request {
        self.leases += 1;
        let client = i64::try_from(self.client).unwrap_or_default();
        Request::grant(((client + 1) << 32) + self.leases)
    }

    fn key(&mut self) -> String {
        key_name(self.random.random_range(0..self.keys))
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("{}-{}", self.client, self.values)
    }
}

fn key_name(number: usize) -> String {
    format!("{PREFIX}{number}")
}

#[cfg(test)]
mod tests {
    use super::super::response::{Done, Nothing};
    use super::*;
    use std::collections::HashSet;

    fn puts(request: &Request) -> Vec<&str> {
        let Request::Txn { txn } = request else { return Vec::new() };
        let written = txn.operations_on_success.iter().chain(&txn.operations_on_failure);
        written.filter_map(|op| if let Op::Put { put } = op { Some(put.value.value.as_str()) } else { None }).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_requests_and_another_client_others() {
        let requests = |seed, client| {
            let mut mix = Mix::new(seed, client, 5);
            (0..50).map(|_| mix.request()).collect::<Vec<_>>()
        };
        assert_eq!(requests(7, 1), requests(7, 1));
        assert_ne!(requests(7, 1), requests(8, 1));
        assert_ne!(requests(7, 1), requests(7, 2));
    }

    #[test]
    fn no_value_is_written_twice_and_none_is_too_long_for_the_form() {
        let mut written = HashSet::new();
        for client in 0..3 {
            let mut mix = Mix::new(1, client, 4);
            for _ in 0..500 {
                for value in puts(&mix.request()) {
                    assert!(value.len() < 20);
                    assert!(written.insert(value.to_owned()), "{value} is written twice");
                }
            }
        }
    }

    #[test]
    fn a_lease_is_used_only_while_it_is_certainly_there() {
        let ok = Outcome::Ok(Response::LeaseGrant { granted: Nothing {}, revision: 1 });
        let unknown = Outcome::Unknown("no answer".to_owned());
        let mut mix = Mix::new(3, 0, 4);
        let grant = Request::grant(1);
        mix.learn(&grant, &unknown);
        assert!(matches!(mix.lease(), Request::LeaseGrant { .. }));
        mix.learn(&grant, &ok);
        assert!(!matches!(mix.lease(), Request::LeaseGrant { .. }));
        mix.learn(&Request::revoke(1), &unknown);
        assert!(matches!(mix.lease(), Request::LeaseGrant { .. }));
    }

    #[test]
    fn what_is_tried_once_more_is_the_same_with_other_values() {
        let mut mix = Mix::new(3, 0, 4);
        let swap = Request::swap("/history/1", 7, "0-90");
        let again = mix.again(&swap).unwrap();
        assert_eq!((puts(&swap), puts(&again)), (vec!["0-90"], vec!["0-1"]));
        let (Request::Txn { txn: first }, Request::Txn { txn: second }) = (&swap, &again) else { panic!("{again:?}") };
        assert_eq!(first.conditions, second.conditions);
        assert_eq!(first.operations_on_failure, second.operations_on_failure);
        assert_eq!(mix.again(&Request::delete("/history/1")), Some(Request::delete("/history/1")));
        assert_ne!(mix.again(&Request::grant(1)), mix.again(&Request::grant(1)));
        for none in [Request::get("/history/1"), Request::revoke(1)] {
            assert_eq!(mix.again(&none), None);
        }
    }

    #[test]
    fn a_swap_expects_what_was_seen_last() {
        let mut mix = Mix::new(3, 0, 1);
        let key = key_name(0);
        let written = Request::put(key.as_str(), "0-1", 0);
        let done = Done { failure: false, results: Vec::new() };
        mix.learn(&written, &Outcome::Ok(Response::Txn { txn: done.clone(), revision: 12 }));
        assert_eq!(mix.seen.get(&key), Some(&12));
        mix.learn(&Request::delete(key.as_str()), &Outcome::Ok(Response::Txn { txn: done, revision: 13 }));
        assert_eq!(mix.seen.get(&key), None);
    }
}
