//! Version of this program.

/// As `git describe` would name its release.
pub const PROGRAM_VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
