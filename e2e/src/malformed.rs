//! Documents of our kinds that are probably wrong, made from good ones and from the schemas of the CRDs.
//!
//! Whatever a person, a template engine or another program writes, the API server has to refuse it and name the wrong
//! field, or our code has to handle it. A [`Generator`] changes the good documents of [`originals()`] at random places,
//! guided by the schemas, so that the changes also reach the rules behind the first check. [`handled`] runs our code on
//! what was accepted.

mod change;
mod handling;
mod originals;
mod refusal;
mod schema;
#[cfg(test)]
mod tests;

pub use handling::handled;
pub use originals::originals;
pub use refusal::says_where;
pub use schema::violations;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

/// The most changes of one document.
const MOST_CHANGES: usize = 3;

/// A document, and what was changed in it.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// The document.
    pub document: Value,
    /// The changes, such as `spec.replicas: out of bounds`.
    pub changes: Vec<String>,
}

/// Makes any number of malformed documents. They follow from the seed.
#[derive(Debug)]
pub struct Generator {
    random: StdRng,
    /// Good documents, each with the schema of its spec.
    originals: Vec<(Value, Value)>,
}

impl Generator {
    /// A generator of documents of the kinds that these CRDs define.
    ///
    /// # Errors
    /// When the CRDs lack the kind or version of a good document.
    pub fn new(seed: u64, crds: &[Value]) -> Result<Self> {
        let of_spec = |document: Value| {
            let schema = schema::of_spec(crds, &document).with_context(|| format!("there is no CRD of {document}"))?;
            Ok((document, schema.clone()))
        };
        let originals = originals().into_iter().map(of_spec).collect::<Result<_>>()?;
        Ok(Self { random: StdRng::seed_from_u64(seed), originals })
    }
}

impl Iterator for Generator {
    type Item = Malformed;

    fn next(&mut self) -> Option<Malformed> {
        let (original, schema) = &self.originals[self.random.random_range(0..self.originals.len())];
        let mut made = Malformed { document: original.clone(), changes: Vec::new() };
        let wanted = self.random.random_range(1..=MOST_CHANGES);
        // Some changes cannot be made at some places, so more changes are tried than are wanted.
        for _ in 0..20 {
            if made.changes.len() < wanted {
                made.changes.extend(change::change(&mut self.random, &mut made.document, schema));
            }
        }
        Some(made)
    }
}
