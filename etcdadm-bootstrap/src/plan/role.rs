//! Init or join, depending on the observation.

use super::prerequisites::Ready;
use super::{Plan, block, wait};
use crate::build::Role;
use crate::observation::Observation;
use api::conditions::reasons;
use api::names;
use etcd_values::endpoint::Endpoint;
use etcd_values::parse_id;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long the first Machine may take until it runs etcdadm: as long as the longest `startupGraceSeconds`. After that,
/// its bootstrap data no longer starts an etcd cluster.
const INIT_TTL: SignedDuration = SignedDuration::from_hours(24);

/// The role of the Machine. `Err`: the init Secret exists and cannot be used, or another Machine comes first.
pub(super) fn role(observation: &Observation, ready: &Ready<'_>) -> Result<Role, Plan> {
    let Some(init) = &observation.init else {
        let not_after = observation.now.saturating_add(INIT_TTL).unwrap_or(Timestamp::MAX);
        return Ok(Role::Init { not_after });
    };
    let secret = names::init_secret(&ready.cluster.name);
    if !init.admits(ready.machine) {
        let message = format!(
            "Machine {} may not join yet: members join in turn, and Secret {secret} does not admit it. The controller \
             of the EtcdCluster admits the Machine in that Secret when it is its turn; the conditions of the \
             EtcdCluster say what has to happen first",
            ready.machine.name
        );
        return Err(wait(reasons::WAITING_FOR_ADMISSION, message));
    }
    let client_urls: Vec<String> =
        init.client_urls.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect();
    // The machine reads them in the same way.
    if client_urls.is_empty() || client_urls.iter().any(|url| url.parse::<Endpoint>().is_err()) {
        let message = format!(
            "Secret {secret}: key clientUrls must hold client URLs of the members, such as https://10.0.0.1:2379, separated \
             by commas"
        );
        return Err(block(reasons::SECRET_INVALID, message));
    }
    let id = |text: &str| {
        parse_id(text).ok_or_else(|| {
            let message = format!(
                "Secret {secret}: key clusterId must hold the ID of the etcd cluster in hexadecimal, such as \
                 cdf818194e3a8c32, or not be there"
            );
            block(reasons::SECRET_INVALID, message)
        })
    };
    let cluster_id = init.cluster_id.as_deref().map(id).transpose()?;
    Ok(Role::Join { client_urls, cluster_id })
}
