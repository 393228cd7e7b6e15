//! All reads, and the clock. What the watches know costs nothing; the few live reads are made only when nothing else
//! stands in the way of a bootstrap.

use crate::build::objects::{LOCK_INFORMATION, LockInformation, etcd_cluster_of};
use crate::build::{CertificateAuthority, SecretValues, references};
use crate::observation::{DataSecret, Init, Live, Lock, MissingValue, Observation};
use crate::plan::prerequisites;
use api::{EtcdCluster, EtcdadmConfig, names};
use controller_support::kinds::CLUSTER_API_CONTRACTS;
use controller_support::loose::{ClusterView, MachineView, secret_bytes, secret_text};
use controller_support::{Cached, Error, Result, ResultExt, Shared, apply};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use kube::discovery::ApiResource;
use kube::{Client, Resource, ResourceExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The watches, and the client for what is read live.
pub(crate) struct Sources {
    pub(crate) client: Client,
    pub(crate) machines: Cached,
    pub(crate) clusters: Cached,
    pub(crate) secrets: Cached,
    pub(crate) config_maps: Cached,
}

/// What this reconcile has written, or has learned from a refusal: watches lag behind it.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) data_secret: Option<DataSecret>,
    pub(crate) lock: Option<LockRecord>,
    pub(crate) refused: Option<String>,
    /// What to tell about the bootstrap Secret that was created.
    pub(crate) created: Option<&'static str>,
    values: Option<SecretValues>,
}

/// The lock as it was read.
#[derive(Clone, Debug)]
pub(crate) struct LockRecord {
    pub(crate) information: String,
    pub(crate) resource_version: String,
}

impl LockRecord {
    pub(crate) fn read(lock: &DynamicObject) -> Self {
        let information = lock.data.pointer(&format!("/data/{LOCK_INFORMATION}")).and_then(Value::as_str);
        Self {
            information: information.unwrap_or_default().to_owned(),
            resource_version: lock.resource_version().unwrap_or_default(),
        }
    }
}

impl Sources {
    /// The watches of a process.
    ///
    /// # Errors
    /// If Cluster API's kinds cannot be looked up.
    pub(crate) async fn new(shared: &Shared) -> Result<Self> {
        let machines = shared.kinds.find(names::CLUSTER_GROUP, "Machine", CLUSTER_API_CONTRACTS).await?;
        let clusters = shared.kinds.find(names::CLUSTER_GROUP, "Cluster", CLUSTER_API_CONTRACTS).await?;
        let ours = Some(names::ETCD_CLUSTER_LABEL);
        Ok(Self {
            client: shared.client.clone(),
            machines: shared.caches.watch(&machines, None),
            clusters: shared.caches.watch(&clusters, None),
            secrets: shared.caches.watch(&ApiResource::erase::<Secret>(&()), ours),
            config_maps: shared.caches.watch(&ApiResource::erase::<ConfigMap>(&()), ours),
        })
    }

    /// Everything about a config.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub(crate) async fn observe(&self, config: Arc<EtcdadmConfig>, known: &mut Known) -> Result<Observation> {
        for watch in [&self.machines, &self.clusters, &self.secrets, &self.config_maps] {
            if !watch.ready().await {
                let kind = &watch.resource().kind;
                return Err(Error::Internal(format!("{kind}: the first list has not come yet")));
            }
        }
        let mut observation = Observation {
            now: now(),
            machine: self.machine(&config),
            cluster: None,
            data_secret: self.data_secret(&config, known).await?,
            authority: None,
            init: None,
            lock: Lock::Free,
            live: None,
            secrets: Ok(SecretValues::default()),
            refused: known.refused.clone(),
            config,
        };
        let namespace = observation.config.namespace().unwrap_or_default();
        let Some(cluster) = observation.cluster_name().map(str::to_owned) else { return Ok(observation) };
        observation.cluster = self.clusters.get(&namespace, &cluster).map(|object| ClusterView::read(&object));
        observation.authority =
            self.watched_secret(&namespace, &names::ca_secret(&cluster), &observation).map(|secret| {
                let value = |key| secret_bytes(&secret, key).unwrap_or_default();
                CertificateAuthority::from_pem(&value("tls.crt"), &value("tls.key"))
            });
        let init = self.watched_secret(&namespace, &names::init_secret(&cluster), &observation);
        observation.init = init.map(|secret| read_init(&secret));
        let Ok(ready) = prerequisites(&observation) else { return Ok(observation) };
        let machine = ready.machine.clone();
        if observation.init.as_ref().is_some_and(|init| !init.admits(&machine)) {
            return Ok(observation);
        }
        observation.secrets = self.values(&observation.config, known).await?;
        if observation.secrets.is_ok() && observation.init.is_none() {
            self.initialization(&mut observation, &machine, &cluster, known).await?;
        }
        Ok(observation)
    }

    /// A Secret of the etcd cluster that the Machine belongs to.
    fn watched_secret(&self, namespace: &str, name: &str, observation: &Observation) -> Option<Arc<DynamicObject>> {
        let machine = observation.machine.as_ref();
        self.secrets
            .get(namespace, name)
            .filter(|secret| machine.is_none_or(|machine| !is_from_before(secret, machine)))
    }

    /// The Machine that the config is for: its owner, or, before Cluster API has made it that, the Machine that refers
    /// to it. Not to wait for the owner saves a second: Cluster API reconciles a Machine once a second.
    fn machine(&self, config: &EtcdadmConfig) -> Option<MachineView> {
        let namespace = config.namespace()?;
        let owner = config.owner_references().iter().find(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == "Machine" && group == Some(names::CLUSTER_GROUP)
        });
        let Some(owner) = owner else {
            let refers = |machine: &DynamicObject| refers_to(&MachineView::read(machine), config);
            return self.machines.select(&namespace, refers).first().map(|machine| MachineView::read(machine));
        };
        let machine = self.machines.get(&namespace, &owner.name)?;
        (machine.uid().as_ref() == Some(&owner.uid)).then(|| MachineView::read(&machine))
    }

    /// The Secret with the config's name. If the status says that there is one and the watch does not know it, the
    /// watch may lag behind: the API server knows.
    async fn data_secret(&self, config: &EtcdadmConfig, known: &Known) -> Result<DataSecret> {
        if let Some(known) = &known.data_secret {
            return Ok(known.clone());
        }
        let (namespace, name) = (config.namespace().unwrap_or_default(), config.name_any());
        if let Some(secret) = self.secrets.get(&namespace, &name) {
            return Ok(whose(config, &secret));
        }
        let promised = config.status.as_ref().is_some_and(|status| status.data_secret_name.is_some());
        if promised { self.data_secret_live(config).await } else { Ok(DataSecret::Absent) }
    }

    /// The Secret with the config's name, live.
    pub(crate) async fn data_secret_live(&self, config: &EtcdadmConfig) -> Result<DataSecret> {
        let (namespace, name) = (config.namespace().unwrap_or_default(), config.name_any());
        let secret = self.secret_live(&namespace, &name).await?;
        Ok(secret.map_or(DataSecret::Absent, |secret| whose(config, &secret)))
    }

    /// The lock, live.
    pub(crate) async fn lock_live(&self, namespace: &str, name: &str) -> Result<Option<LockRecord>> {
        let lock = get(&self.client, self.config_maps.resource(), namespace, name).await?;
        Ok(lock.map(|lock| LockRecord::read(&lock)))
    }

    async fn secret_live(&self, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
        get(&self.client, self.secrets.resource(), namespace, name).await
    }

    /// Values of the Secrets that the spec refers to, each Secret read once. They are not watched: a watch of them would
    /// be one of all Secrets.
    async fn values(&self, config: &EtcdadmConfig, known: &mut Known) -> Result<Result<SecretValues, MissingValue>> {
        if let Some(values) = &known.values {
            return Ok(Ok(values.clone()));
        }
        let namespace = config.namespace().unwrap_or_default();
        let mut read: BTreeMap<&str, Option<DynamicObject>> = BTreeMap::new();
        let mut values = SecretValues::default();
        for (field, source) in references(&config.spec) {
            if !read.contains_key(source.name.as_str()) {
                read.insert(&source.name, self.secret_live(&namespace, &source.name).await?);
            }
            let secret = read.get(source.name.as_str()).and_then(Option::as_ref);
            match secret.map(|secret| secret_bytes(secret, &source.key)) {
                Some(Some(value)) => values.insert(source, value),
                found => {
                    let key = found.is_some().then(|| source.key.clone());
                    return Ok(Err(MissingValue { field, secret: source.name.clone(), key }));
                }
            }
        }
        known.values = Some(values.clone());
        Ok(Ok(values))
    }

    /// Who may initialize; and if it is this Machine, a last look whether that has not happened long ago.
    async fn initialization(
        &self,
        observation: &mut Observation,
        machine: &MachineView,
        cluster: &str,
        known: &Known,
    ) -> Result<()> {
        observation.lock = self.lock(machine, cluster, known).await?;
        if observation.lock == Lock::Ours {
            let init = self.secret_live(&machine.namespace, &names::init_secret(cluster)).await?;
            observation.init = init.filter(|secret| !is_from_before(secret, machine)).map(|secret| read_init(&secret));
            observation.live = Some(self.live(machine, &observation.config).await?);
        }
        Ok(())
    }

    async fn lock(&self, machine: &MachineView, cluster: &str, known: &Known) -> Result<Lock> {
        let watched = || self.config_maps.get(&machine.namespace, &names::init_lock(cluster));
        let Some(lock) = known.lock.clone().or_else(|| watched().map(|lock| LockRecord::read(&lock))) else {
            return Ok(Lock::Free);
        };
        let Ok(LockInformation { machine_name: holder, machine_uid: uid }) = serde_json::from_str(&lock.information)
        else {
            return Ok(Lock::Unreadable);
        };
        // A lock without a UID is told by the name alone.
        let is_holder = |found: Option<String>| uid.is_none() || found == uid;
        if holder == machine.name && is_holder(Some(machine.uid.clone())) {
            return Ok(Lock::Ours);
        }
        let known = self.machines.get(&machine.namespace, &holder).is_some_and(|machine| is_holder(machine.uid()));
        let present = known
            || get(&self.client, self.machines.resource(), &machine.namespace, &holder)
                .await?
                .is_some_and(|machine| is_holder(machine.uid()));
        Ok(Lock::Held { holder, present, resource_version: lock.resource_version })
    }

    /// What the EtcdCluster of the Machine says: it remembers that it has been initialized. Before it can know that, the
    /// bootstrap data of another Machine tells that somebody is about to do it.
    async fn live(&self, machine: &MachineView, config: &EtcdadmConfig) -> Result<Live> {
        let Some((name, uid)) = etcd_cluster_of(machine) else { return Ok(Live::NotInitialized) };
        let api: Api<EtcdCluster> = Api::namespaced(self.client.clone(), &machine.namespace);
        let etcd = api.get_opt(name).await.doing(|| format!("reading EtcdCluster {name}"))?;
        Ok(match etcd.filter(|etcd| etcd.metadata.uid.as_deref() == Some(uid)) {
            None => Live::OwnerGone,
            Some(etcd) if etcd.metadata.deletion_timestamp.is_some() => Live::OwnerGone,
            Some(etcd) if etcd.status.as_ref().is_some_and(|status| status.initialized) => Live::Initialized,
            Some(_) => self.begun(machine, name, config).await?.map_or(Live::NotInitialized, Live::Begun),
        })
    }

    /// Name of another Machine of the EtcdCluster that has bootstrap data. The data goes with its config, and so with the
    /// Machine.
    async fn begun(&self, machine: &MachineView, etcd: &str, config: &EtcdadmConfig) -> Result<Option<String>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &machine.namespace);
        let of_etcd = ListParams::default().labels(&format!("{}={etcd}", names::ETCD_CLUSTER_LABEL));
        let list = secrets.list_metadata(&of_etcd).await.doing(|| format!("listing bootstrap data of {etcd}"))?;
        let by_another = |secret: &&PartialObjectMeta<Secret>| {
            let owners = secret.owner_references().iter();
            let configs =
                owners.filter(|owner| owner.kind == EtcdadmConfig::kind(&()) && owner.controller == Some(true));
            configs.map(|owner| &owner.uid).any(|uid| Some(uid) != config.metadata.uid.as_ref())
        };
        Ok(list.items.iter().find(by_another).map(ResourceExt::name_any))
    }
}

/// Whether a Machine's bootstrap config is this one.
fn refers_to(machine: &MachineView, config: &EtcdadmConfig) -> bool {
    machine.bootstrap_config.as_ref().is_some_and(|reference| {
        reference.kind == EtcdadmConfig::kind(&())
            && reference.group == names::BOOTSTRAP_GROUP
            && Some(&reference.name) == config.metadata.name.as_ref()
    })
}

/// Whether a Secret is controlled by this very config.
fn whose(config: &EtcdadmConfig, secret: &DynamicObject) -> DataSecret {
    match secret.owner_references().iter().find(|owner| owner.controller == Some(true)) {
        Some(owner) if Some(&owner.uid) == config.metadata.uid.as_ref() => DataSecret::Ours,
        Some(owner) => DataSecret::Foreign(format!("{} {}", owner.kind, owner.name)),
        None => DataSecret::Foreign("nobody we know".to_owned()),
    }
}

/// Whether a Secret is of an earlier EtcdCluster for the same Cluster, and about to be collected.
fn is_from_before(secret: &DynamicObject, machine: &MachineView) -> bool {
    let present = etcd_cluster_of(machine).map(|(_, uid)| uid);
    let is_etcd = |owner: &&OwnerReference| owner.kind == EtcdCluster::kind(&());
    let owner = secret.owner_references().iter().find(is_etcd);
    owner.is_some_and(|owner| present.is_some_and(|present| owner.uid != present))
}

fn read_init(init: &DynamicObject) -> Init {
    let admitted = secret_text(init, names::ADMITTED);
    Init {
        client_urls: secret_text(init, "clientUrls").unwrap_or_default(),
        admitted: admitted.map(|all| all.split(',').filter_map(admitted_uid).collect()),
    }
}

/// The EtcdCluster's controller counts an entry without a time as none, so it is none here too.
fn admitted_uid(entry: &str) -> Option<String> {
    let (uid, since) = entry.split_once('@')?;
    since.parse::<Timestamp>().is_ok().then(|| uid.to_owned())
}

async fn get(client: &Client, kind: &ApiResource, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
    let api = apply::dynamic(client, kind, namespace);
    api.get_opt(name).await.doing(|| format!("reading {} {namespace}/{name}", kind.kind))
}

#[expect(clippy::disallowed_methods, reason = "this is where the clock is read")]
fn now() -> Timestamp {
    Timestamp::now()
}
