//! LocalClusters: each has an address for the API servers, and is ready immediately.

mod context;
mod controller;
mod execute;
mod observation;
mod observe;
mod plan;
mod status;

pub(crate) use controller::run;
