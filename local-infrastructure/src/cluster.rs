//! LocalClusters: an address for the API servers, ready at once.

mod context;
mod controller;
mod execute;
mod observation;
mod observe;
mod plan;
mod status;

pub(crate) use controller::run;
