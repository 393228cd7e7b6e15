//! What the hook writes: pure functions that make patches and objects from what was observed.

pub mod patch;
pub mod secret;
pub mod status;

#[cfg(test)]
mod tests;
