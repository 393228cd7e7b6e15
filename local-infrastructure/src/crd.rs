//! x
/// A machine's id for Cluster API.
#[must_use]
pub fn provider_id(namespace: &str, name: &str) -> String {
    format!("local:////{namespace}/{name}")
}
