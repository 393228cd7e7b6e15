//! All writes. Each can be repeated, and none overwrites what somebody else has written.

use crate::CONTROLLER;
use crate::build::objects::LOCK_INFORMATION;
use crate::observation::{DataSecret, Observation};
use crate::observe::{Known, LockRecord, Sources};
use crate::plan::Step;
use api::EtcdadmConfig;
use api::etcdadm_config::EtcdadmConfigStatus;
use controller_support::error::{is_conflict, is_invalid, is_not_found};
use controller_support::{Error, Events, Freshest, Result, apply};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use kube::{Resource, ResourceExt};
use serde_json::json;

/// What writes go through.
pub(crate) struct Writer {
    pub(crate) events: Events,
    pub(crate) fresh: Freshest<EtcdadmConfig>,
}

impl Writer {
    /// Does one step. What the write has shown goes into `known`.
    ///
    /// # Errors
    /// If the API server does not answer, or somebody else was quicker at taking over the lock.
    pub(crate) async fn execute(
        &self,
        sources: &Sources,
        observation: &Observation,
        step: &Step,
        known: &mut Known,
    ) -> Result<()> {
        match step {
            Step::TakeLock(lock) => take_lock(sources, lock, known).await,
            Step::TakeOverLock { lock, from, resource_version } => {
                take_over_lock(sources, lock, resource_version, known).await?;
                let note = format!("Machine {from}, which was to initialize the cluster, is gone: this one does");
                self.events.normal(&observation.config.object_ref(&()), "Bootstrap", "InitLockTakenOver", note).await;
                Ok(())
            }
            Step::CreateDataSecret { secret, init } => {
                create_data_secret(sources, observation, secret, *init, known).await
            }
        }
    }

    /// Writes the status. The config may be gone by now, which is as well.
    ///
    /// # Errors
    /// Any other answer but success.
    pub(crate) async fn write_status(
        &self,
        sources: &Sources,
        config: &EtcdadmConfig,
        status: &EtcdadmConfigStatus,
    ) -> Result<()> {
        let api: Api<EtcdadmConfig> = Api::namespaced(sources.client.clone(), &config.namespace().unwrap_or_default());
        // With the UID: a later config of the same name must not get this status.
        let object = json!({
            "apiVersion": EtcdadmConfig::api_version(&()),
            "kind": EtcdadmConfig::kind(&()),
            "metadata": {"name": config.name_any(), "uid": config.uid()},
            "status": status,
        });
        match apply::apply_status(&api, CONTROLLER, &config.name_any(), &object).await {
            Ok(answer) => self.fresh.remember(answer),
            Err(Error::Api { source, .. }) if is_not_found(&source) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Creates the lock. If there is one already, it is read: the watch did not know of it.
async fn take_lock(sources: &Sources, lock: &ConfigMap, known: &mut Known) -> Result<()> {
    let (namespace, name) = (lock.namespace().unwrap_or_default(), lock.name_any());
    let api: Api<ConfigMap> = Api::namespaced(sources.client.clone(), &namespace);
    match apply::create(&api, CONTROLLER, lock).await {
        Ok(created) => known.lock = Some(held(&created)),
        Err(Error::Api { source, .. }) if is_conflict(&source) => {
            known.lock = sources.lock_live(&namespace, &name).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Replaces holder, owner and labels of the lock, in the version that was read and in no other.
async fn take_over_lock(sources: &Sources, lock: &ConfigMap, resource_version: &str, known: &mut Known) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(sources.client.clone(), &lock.namespace().unwrap_or_default());
    let patch = json!({
        "metadata": {
            "resourceVersion": resource_version,
            "labels": lock.metadata.labels,
            "ownerReferences": lock.metadata.owner_references,
        },
        "data": lock.data,
    });
    let taken: ConfigMap = apply::merge(&api, CONTROLLER, &lock.name_any(), &patch).await?;
    known.lock = Some(held(&taken));
    Ok(())
}

fn held(lock: &ConfigMap) -> LockRecord {
    LockRecord {
        information: lock.data.as_ref().and_then(|data| data.get(LOCK_INFORMATION)).cloned().unwrap_or_default(),
        resource_version: lock.resource_version().unwrap_or_default(),
    }
}

/// Creates the bootstrap Secret. If there is one of that name already, it is found out whose.
async fn create_data_secret(
    sources: &Sources,
    observation: &Observation,
    secret: &Secret,
    init: bool,
    known: &mut Known,
) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(sources.client.clone(), &secret.namespace().unwrap_or_default());
    match apply::create(&api, CONTROLLER, secret).await {
        Ok(_) => {
            known.data_secret = Some(DataSecret::Ours);
            // Told once the status is written: the Machine waits for that, and nobody for the event.
            known.created = Some(if init { "the Machine initializes etcd" } else { "the Machine joins etcd" });
            Ok(())
        }
        Err(Error::Api { source, .. }) if is_conflict(&source) => {
            known.data_secret = Some(sources.data_secret_live(&observation.config).await?);
            Ok(())
        }
        Err(Error::Api { source, .. }) if is_invalid(&source) => {
            known.refused = Some(source.to_string());
            Ok(())
        }
        Err(error) => Err(error),
    }
}
