//! What is written: pure functions from what was observed to patches and objects.

pub mod patch;
pub mod secret;
pub mod status;

#[cfg(test)]
mod tests;
