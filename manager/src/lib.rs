//! The process around the controllers: flags, logs, lease, health and metrics, and a graceful stop.

pub mod admin;
pub mod diagnostics;
pub mod flags;
pub mod lease;
pub mod limits;
pub mod logs;
pub mod process;
