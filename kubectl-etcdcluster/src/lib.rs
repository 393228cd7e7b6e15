//! `kubectl etcdcluster`: how an etcd cluster is, what holds it up, and what an edit would do.
//!
//! The flow is one way: [`reader`] reads, [`snapshot`] is what was read as plain data, [`report`] says what that
//! amounts to (it is also what `-o json` prints), and [`tree`], [`why`] and [`plan`] put it into words. Beside that,
//! [`gather`] reads what belongs to it in a wider sense: [`bundle`] packs it without secrets, and [`doctor`] checks it,
//! with what [`dial`] has heard from the members' ports. All but the reads, [`dial`] and [`commands`] is pure. What an
//! edit leads to is not told by rules of its own: [`forecast`] lets the shipped planner decide, step by step, until
//! nothing is left to do.

pub mod bundle;
pub mod certificates;
pub mod cli;
pub mod commands;
pub mod connection;
pub mod dial;
pub mod doctor;
pub mod edit;
pub mod facts;
#[cfg(test)]
mod fixture;
pub mod forecast;
pub mod gather;
pub mod lines;
pub mod moving;
pub mod observation;
pub mod plan;
pub mod reader;
pub mod redact;
pub mod report;
pub mod screen;
pub mod secrets;
pub mod snapshot;
pub mod text;
pub mod tree;
pub mod why;

/// Name under which this program writes.
pub const FIELD_MANAGER: &str = "kubectl-etcdcluster";
