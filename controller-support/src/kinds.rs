//! Which version of another provider's kind to use. Like Cluster API, this derives the version from the contract labels
//! on the kind's CRD. It reads only the metadata of the CRD.

use crate::error::{Result as IoResult, ResultExt, code};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{GroupVersionKind, Version};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{RwLock, watch};

/// Labels on CRDs, each of which names a contract.
pub type Contracts = &'static [&'static str];

/// Cluster API's contracts, preferred first.
pub const CLUSTER_API_CONTRACTS: Contracts = &["cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1"];
/// The etcd-provider contract.
pub const ETCD_PROVIDER_CONTRACTS: Contracts = &[api::names::ETCD_PROVIDER_CONTRACT_LABEL];

/// Why a kind cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// The CRD does not exist.
    #[error("kind {kind} does not exist: install its provider, or correct the reference")]
    NotServed {
        /// Kind that was asked for, with its group.
        kind: String,
    },
    /// The CRD does not say which of its versions satisfies the contract.
    #[error("the CRD of {kind} has no label {label}: it does not say that it satisfies this contract")]
    NoContract {
        /// Kind that was asked for, with its group.
        kind: String,
        /// The preferred label.
        label: String,
    },
    /// The API server did not answer.
    #[error("looking up kind {kind}: {source}")]
    Api {
        /// Kind that was asked for, with its group.
        kind: String,
        /// The answer.
        #[source]
        source: Box<kube::Error>,
    },
}

impl KindError {
    /// Whether the user's reference is at fault, and not a failing API server.
    #[must_use]
    pub fn is_user_error(&self) -> bool {
        !matches!(self, Self::Api { .. })
    }
}

/// Group, kind and contracts: a version that satisfies one contract need not satisfy another.
type Known = (String, String, Contracts);

/// Finds and remembers the served version of kinds.
#[derive(Clone)]
pub struct Kinds {
    client: Client,
    known: Arc<RwLock<HashMap<Known, ApiResource>>>,
    /// How many watched versions have turned out to be no longer served.
    lost: Arc<watch::Sender<u64>>,
}

impl Kinds {
    /// Starts with no known kind.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, known: Arc::default(), lost: Arc::new(watch::channel(0).0) }
    }

    /// The version of `kind` in `group` that satisfies the first of `contracts` that its CRD has a label for.
    ///
    /// A kind that was found once costs no further request; [`Kinds::forget`] it when the version is gone.
    ///
    /// # Errors
    /// See [`KindError`].
    pub async fn find(&self, group: &str, kind: &str, contracts: Contracts) -> Result<ApiResource, KindError> {
        let key = (group.to_owned(), kind.to_owned(), contracts);
        if let Some(found) = self.known.read().await.get(&key) {
            return Ok(found.clone());
        }
        let found = self.ask(group, kind, contracts).await?;
        self.known.write().await.insert(key, found.clone());
        Ok(found)
    }

    /// Forgets a kind, so that the next [`Kinds::find`] asks again.
    pub async fn forget(&self, group: &str, kind: &str) {
        self.known.write().await.retain(|(known_group, known_kind, _), _| known_group != group || known_kind != kind);
    }

    /// Requests objects of a kind that no watch of ours follows. Only the answer 404 shows that the version is no
    /// longer served. The version is then looked up again, and `ask` is called once more. `doing` says what the request
    /// is for.
    ///
    /// # Errors
    /// See [`KindError`], and any answer but success.
    pub async fn ask_unwatched<T, F, Fut>(
        &self,
        (group, kind): (&str, &str),
        contracts: Contracts,
        doing: &str,
        ask: F,
    ) -> IoResult<T>
    where
        F: Fn(ApiResource) -> Fut,
        Fut: Future<Output = kube::Result<T>>,
    {
        let mut answer = ask(self.find(group, kind, contracts).await?).await;
        if answer.as_ref().is_err_and(|error| code(error) == 404) {
            self.forget(group, kind).await;
            answer = ask(self.find(group, kind, contracts).await?).await;
        }
        answer.doing(|| doing.to_owned())
    }

    /// Forgets one version, so that the next [`Kinds::find`] that would have returned it asks again.
    pub(crate) async fn forget_version(&self, resource: &ApiResource) {
        self.known.write().await.retain(|_, known| known != resource);
    }

    /// Forgets a watched version that is no longer served, and ends [`Kinds::lost`].
    pub(crate) async fn lose(&self, resource: &ApiResource) {
        tracing::warn!(kind = resource.kind, version = resource.version, "this version is no longer served");
        self.forget_version(resource).await;
        self.lost.send_modify(|lost| *lost += 1);
    }

    /// Makes the version known, as if it had been found.
    #[cfg(test)]
    pub(crate) async fn know(&self, resource: &ApiResource) {
        let key = (resource.group.clone(), resource.kind.clone(), CLUSTER_API_CONTRACTS);
        self.known.write().await.insert(key, resource.clone());
    }

    #[cfg(test)]
    pub(crate) async fn knows(&self, resource: &ApiResource) -> bool {
        self.known.read().await.values().any(|known| known == resource)
    }

    /// Returns when a watched version turns out to be no longer served, from now on. Whatever was found before may have
    /// that version.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut lost = self.lost.subscribe();
        let keep = self.lost.clone();
        async move {
            let _ = lost.changed().await;
            drop(keep);
        }
    }

    /// The annotations on the CRD of a kind. Costs a request every time.
    ///
    /// # Errors
    /// See [`KindError`].
    pub async fn annotations(&self, group: &str, kind: &str) -> Result<BTreeMap<String, String>, KindError> {
        Ok(self.metadata(group, kind).await?.annotations.unwrap_or_default())
    }

    /// The labels on the CRD of a kind. Costs a request every time.
    ///
    /// # Errors
    /// See [`KindError`].
    pub async fn labels(&self, group: &str, kind: &str) -> Result<BTreeMap<String, String>, KindError> {
        Ok(self.metadata(group, kind).await?.labels.unwrap_or_default())
    }

    async fn metadata(&self, group: &str, kind: &str) -> Result<ObjectMeta, KindError> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        match crds.get_metadata_opt(&format!("{}.{group}", resource(group, "v1", kind).plural)).await {
            Ok(Some(crd)) => Ok(crd.metadata),
            Ok(None) => Err(KindError::NotServed { kind: format!("{kind}.{group}") }),
            Err(source) => Err(KindError::Api { kind: format!("{kind}.{group}"), source: Box::new(source) }),
        }
    }

    async fn ask(&self, group: &str, kind: &str, contracts: &[&str]) -> Result<ApiResource, KindError> {
        let metadata = self.metadata(group, kind).await?;
        let named = || format!("{kind}.{group}");
        let mut version = version_of(&metadata.labels.unwrap_or_default(), contracts);
        // Cluster API's own kinds have no such labels: the contracts are named after their versions.
        if version.is_none() && contracts.iter().any(|contract| contract.split('/').next() == Some(group)) {
            let groups = self.client.list_api_groups().await;
            let groups = groups.map_err(|source| KindError::Api { kind: named(), source: Box::new(source) })?;
            let served = groups.groups.into_iter().filter(|served| served.name == group).flat_map(|g| g.versions);
            version = own_version(&served.map(|version| version.group_version).collect::<Vec<_>>(), contracts);
        }
        let label = contracts.first().copied().unwrap_or_default().to_owned();
        let version = version.ok_or_else(|| KindError::NoContract { kind: named(), label })?;
        Ok(resource(group, &version, kind))
    }
}

/// The plural is only a guess, but it follows Cluster API's rule for naming CRDs.
fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The newest version that the labels list for the first contract that they contain.
fn version_of(labels: &BTreeMap<String, String>, contracts: &[&str]) -> Option<String> {
    let versions = contracts.iter().find_map(|contract| labels.get(*contract))?;
    versions.split('_').filter(|v| !v.is_empty()).max_by_key(|v| Version::parse(v).priority()).map(str::to_owned)
}

/// The version after which the first contract is named, out of those served as `group/version`.
fn own_version(served: &[String], contracts: &[&str]) -> Option<String> {
    let contract = contracts.iter().find(|contract| served.iter().any(|version| version == *contract))?;
    contract.split_once('/').map(|(_, version)| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[tokio::test]
    async fn a_version_that_nothing_watches_is_looked_up_again_when_it_is_not_served() {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let kinds = Kinds::new(Client::try_from(kube::Config::new(url)).unwrap());
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Kind"));
        let answered = async |code: u16| {
            kinds.know(&resource).await;
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            let ask = |_| std::future::ready(Err::<(), _>(kube::Error::Api(Box::new(status.clone()))));
            let kind = ("example.org", "Kind");
            kinds.ask_unwatched(kind, CLUSTER_API_CONTRACTS, "listing Kinds", ask).await.unwrap_err().to_string()
        };
        let outage = answered(503).await;
        assert!(outage.starts_with("listing Kinds: ") && kinds.knows(&resource).await, "{outage}");
        let gone = answered(404).await;
        assert!(gone.starts_with("looking up kind Kind.example.org"), "nobody has looked: {gone}");
        assert!(!kinds.knows(&resource).await);
    }

    #[test]
    fn the_newest_version_of_the_preferred_contract_is_taken() {
        let both = labels(&[("cluster.x-k8s.io/v1beta1", "v1beta1"), ("cluster.x-k8s.io/v1beta2", "v1beta2")]);
        assert_eq!(version_of(&both, CLUSTER_API_CONTRACTS).as_deref(), Some("v1beta2"));
        let old = labels(&[("cluster.x-k8s.io/v1beta1", "v1alpha4_v1beta1")]);
        assert_eq!(version_of(&old, CLUSTER_API_CONTRACTS).as_deref(), Some("v1beta1"));
        assert_eq!(version_of(&labels(&[("app", "x")]), CLUSTER_API_CONTRACTS), None);
    }

    #[test]
    fn cluster_apis_own_kinds_are_spoken_to_in_the_version_of_the_preferred_contract() {
        let served = |versions: &[&str]| versions.iter().map(|v| format!("cluster.x-k8s.io/{v}")).collect::<Vec<_>>();
        let version = |versions: &[&str]| own_version(&served(versions), CLUSTER_API_CONTRACTS);
        assert_eq!(version(&["v1beta1", "v1beta2"]).as_deref(), Some("v1beta2"));
        assert_eq!(version(&["v1alpha4", "v1beta1"]).as_deref(), Some("v1beta1"));
        assert_eq!(version(&["v2"]), None);
    }
}
