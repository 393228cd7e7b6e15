//! Which configs a change concerns. A reconcile that finds nothing to do costs no request, so it is cheap to reconcile
//! one config too many.

use api::{EtcdadmConfig, names};
use controller_support::Index;
use controller_support::external::MachineView;
use kube::api::DynamicObject;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use std::sync::Arc;

/// EtcdadmConfigs by the Cluster in their label. The key of a config without the label is empty: it may belong to any
/// Cluster of its namespace, and only its Machine shows which one.
pub(crate) const BY_CLUSTER: Index = Index::new("Cluster", |config| vec![label(config)]);

/// The configs of a namespace that have a key in [`BY_CLUSTER`].
pub(crate) type Configs<'a> = &'a dyn Fn(&str, &str) -> Vec<Arc<DynamicObject>>;
type Refs = Vec<ObjectRef<EtcdadmConfig>>;
pub(crate) type Mapper = fn(Configs<'_>, &DynamicObject) -> Refs;

/// The Machine's own config, and the configs that wait, because the Machine may have held the init lock.
pub(crate) fn machine_to_configs(configs: Configs<'_>, machine: &DynamicObject) -> Refs {
    let view = MachineView::read(machine);
    let own = view
        .bootstrap_config
        .filter(|config| config.kind == EtcdadmConfig::kind(&()) && config.group == names::BOOTSTRAP_GROUP)
        .map(|config| ObjectRef::new(&config.name).within(&view.namespace));
    own.into_iter().chain(waiting(configs, machine, &view.cluster)).collect()
}

/// Every config of the Cluster: it may have been paused.
pub(crate) fn cluster_to_configs(configs: Configs<'_>, cluster: &DynamicObject) -> Refs {
    select(configs, cluster, &cluster.name_any(), |_| true)
}

/// The config of a bootstrap Secret, and the configs that wait for the cluster's CA or its initialization.
pub(crate) fn secret_to_configs(configs: Configs<'_>, secret: &DynamicObject) -> Refs {
    let name = secret.name_any();
    let own = secret.owner_references().iter().filter(|owner| owner.kind == EtcdadmConfig::kind(&()));
    let own = own.map(|owner| ObjectRef::new(&owner.name).within(&secret.namespace().unwrap_or_default()));
    let cluster = name.strip_suffix(names::ca_secret("").as_str());
    let cluster = cluster.or_else(|| name.strip_suffix(names::init_secret("").as_str()));
    let waiting = cluster.map(|cluster| waiting(configs, secret, cluster)).unwrap_or_default();
    own.chain(waiting).collect()
}

/// The configs that wait for the cluster's initialization.
pub(crate) fn lock_to_configs(configs: Configs<'_>, lock: &DynamicObject) -> Refs {
    let name = lock.name_any();
    let cluster = name.strip_suffix(names::init_lock("").as_str());
    cluster.map(|cluster| waiting(configs, lock, cluster)).unwrap_or_default()
}

/// The configs of a Cluster that have no bootstrap data yet.
fn waiting(configs: Configs<'_>, beside: &DynamicObject, cluster: &str) -> Refs {
    select(configs, beside, cluster, |config| config.data["status"]["ready"] != true)
}

/// The configs of the Cluster, and those that may belong to it.
fn select(configs: Configs<'_>, beside: &DynamicObject, cluster: &str, wanted: fn(&DynamicObject) -> bool) -> Refs {
    let namespace = beside.namespace().unwrap_or_default();
    let found = [cluster, ""].into_iter().flat_map(|key| configs(&namespace, key));
    found.filter(|config| wanted(config)).map(|config| ObjectRef::new(&config.name_any()).within(&namespace)).collect()
}

fn label(config: &DynamicObject) -> String {
    config.labels().get(names::CLUSTER_NAME_LABEL).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
