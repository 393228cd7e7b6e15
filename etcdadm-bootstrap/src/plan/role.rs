//! Init or join, by what is observed.

use super::{Plan, block};
use crate::build::Role;
use crate::observation::Observation;
use api::conditions::reasons;
use api::names;
use controller_support::loose::ClusterView;

/// The role of the Machine. `Err`: the init Secret is there and cannot be used.
pub(super) fn role(seen: &Observation, cluster: &ClusterView) -> Result<Role, Plan> {
    let Some(text) = &seen.client_urls else { return Ok(Role::Init) };
    let client_urls: Vec<String> =
        text.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect();
    if !client_urls.is_empty() && client_urls.iter().all(|url| is_client_url(url)) {
        return Ok(Role::Join { client_urls });
    }
    let message = format!(
        "Secret {}: key clientUrls must hold client URLs of the members, such as https://10.0.0.1:2379, separated by commas",
        names::init_secret(&cluster.name)
    );
    Err(block(reasons::SECRET_INVALID, message))
}

fn is_client_url(url: &str) -> bool {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    host.is_some_and(|host| {
        host.chars().all(|c| c.is_ascii_alphanumeric() || ".:-_[]%".contains(c)) && !host.is_empty()
    })
}
