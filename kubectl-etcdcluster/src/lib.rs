//! `kubectl etcdcluster`: the state of an etcd cluster, what holds it up, and what an edit would do.
//!
//! The data flows in one direction: [`reader`] reads, [`snapshot`] holds the result as plain data, [`report`] derives
//! the state from it (`-o json` prints it too), and [`tree`], [`why`] and [`plan`] turn it into text. Besides,
//! [`gather`] reads what belongs to the etcd cluster in a wider sense: [`bundle`] packs it without secrets, and
//! [`doctor`] checks it, together with the answers of the members' ports from [`dial`]. All modules are pure, except
//! for those that read, [`dial`] and [`commands`]. This crate has no rules of its own for the effect of an edit:
//! [`forecast`] lets the shipped planner decide, step by step, until nothing is left to do.

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

/// The field manager of this program's writes.
pub const FIELD_MANAGER: &str = "kubectl-etcdcluster";
