//! The users of the API server: one for each component, so that the audit log tells them apart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::pki::Pki;

/// A person, and scenarios.
pub const ADMIN: &str = "admin";
/// kube-controller-manager, under the name that its garbage collector has if each controller has a service account of
/// its own, as kubeadm sets it up. Policies let it pass by this name.
pub const CONTROLLER_MANAGER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// Cluster API's core manager.
pub const CAPI_CORE: &str = "capi-core";
/// Cluster API's kubeadm bootstrap manager.
pub const CAPI_BOOTSTRAP: &str = "capi-bootstrap";
/// Cluster API's kubeadm control plane manager.
pub const CAPI_CONTROL_PLANE: &str = "capi-control-plane";
/// This project's manager.
pub const PROVIDER: &str = "provider";
/// This project's managers, if two of them share the clusters.
pub const SHARDS: [&str; 2] = ["provider-blue", "provider-green"];
/// This project's local infrastructure controllers.
pub const LOCAL_INFRASTRUCTURE: &str = "local-infrastructure";
/// The observer of scenarios. No other component makes requests as this user.
pub const OBSERVER: &str = "observer";

const ALL: [&str; 10] = [
    ADMIN,
    CONTROLLER_MANAGER,
    CAPI_CORE,
    CAPI_BOOTSTRAP,
    CAPI_CONTROL_PLANE,
    PROVIDER,
    SHARDS[0],
    SHARDS[1],
    LOCAL_INFRASTRUCTURE,
    OBSERVER,
];

/// Whether a user is a manager of this project: one of the users above, or the service account that `config` installs,
/// in any namespace.
#[must_use]
pub fn is_provider(user: &str) -> bool {
    let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
    user == PROVIDER || SHARDS.contains(&user) || account.is_some_and(|(_, name)| name == "manager")
}

/// The users of a plane.
pub(super) struct Users {
    /// For kube-apiserver's `--token-auth-file`.
    pub token_file: PathBuf,
    kubeconfigs: BTreeMap<String, PathBuf>,
}

impl Users {
    /// Writes the token file and one kubeconfig for each user into `directory`, for an API server on this port. `extra`
    /// are users in addition to the usual ones.
    pub(super) fn create(directory: &Path, pki: &Pki, extra: &[String], port: u16) -> Result<Self> {
        let mut tokens = String::new();
        let mut kubeconfigs = BTreeMap::new();
        for user in ALL.into_iter().chain(extra.iter().map(String::as_str)) {
            // Only this world can reach the API server, so a token only has to say which user it is.
            let token = format!("{user}-token");
            tokens.push_str(&format!("{token},{user},{user},system:masters\n"));
            let kubeconfig = json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "plane", "cluster": {
                    "server": format!("https://127.0.0.1:{port}"),
                    "certificate-authority": pki.authority_file,
                }}],
                "users": [{"name": user, "user": {"token": token}}],
                "contexts": [{"name": user, "context": {"cluster": "plane", "user": user}}],
                "current-context": user,
            });
            let path = directory.join(format!("{user}.kubeconfig"));
            fs::write(&path, kubeconfig.to_string()).with_context(|| format!("write {}", path.display()))?;
            kubeconfigs.insert(user.to_owned(), path);
        }
        let token_file = directory.join("tokens.csv");
        fs::write(&token_file, tokens).with_context(|| format!("write {}", token_file.display()))?;
        Ok(Self { token_file, kubeconfigs })
    }

    /// The kubeconfig of `user`.
    pub(super) fn kubeconfig(&self, user: &str) -> Result<&Path> {
        self.kubeconfigs
            .get(user)
            .map(PathBuf::as_path)
            .with_context(|| format!("the plane has no user {user}: name it in PlaneOptions::users"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::a_manager(PROVIDER, true)]
    #[case::one_of_two(SHARDS[1], true)]
    #[case::a_service_account_of_ours("system:serviceaccount:team-a:manager", true)]
    #[case::prometheus("system:serviceaccount:team-a:prometheus", false)]
    #[case::garbage_collection(CONTROLLER_MANAGER, false)]
    #[case::a_person(ADMIN, false)]
    fn our_managers_are_known_by_their_users(#[case] user: &str, #[case] ours: bool) {
        assert_eq!(is_provider(user), ours);
    }
}
