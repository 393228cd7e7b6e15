//! Which configs a change concerns. A reconcile that finds nothing to do costs no request, so a config too many is cheap.

use api::{EtcdadmConfig, names};
use controller_support::external::MachineView;
use kube::api::DynamicObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt};

pub(crate) type Configs = Store<EtcdadmConfig>;
type Refs = Vec<ObjectRef<EtcdadmConfig>>;
pub(crate) type Mapper = fn(&Configs, &DynamicObject) -> Refs;

/// The Machine's own config; and those that wait, because the Machine may have held the init lock.
pub(crate) fn machine_to_configs(configs: &Configs, machine: &DynamicObject) -> Refs {
    let view = MachineView::read(machine);
    let own = view
        .bootstrap_config
        .filter(|config| config.kind == EtcdadmConfig::kind(&()) && config.group == names::BOOTSTRAP_GROUP)
        .map(|config| ObjectRef::new(&config.name).within(&view.namespace));
    own.into_iter().chain(waiting(configs, machine, &view.cluster)).collect()
}

/// Every config of the Cluster: it may have been paused.
pub(crate) fn cluster_to_configs(configs: &Configs, cluster: &DynamicObject) -> Refs {
    let name = cluster.name_any();
    select(configs, cluster, |config| may_be_of(config, &name))
}

/// The config of a bootstrap Secret; and those that wait for the cluster's CA or its initialization.
pub(crate) fn secret_to_configs(configs: &Configs, secret: &DynamicObject) -> Refs {
    let name = secret.name_any();
    let own = secret.owner_references().iter().filter(|owner| owner.kind == EtcdadmConfig::kind(&()));
    let own = own.map(|owner| ObjectRef::new(&owner.name).within(&secret.namespace().unwrap_or_default()));
    let cluster = name.strip_suffix(names::ca_secret("").as_str());
    let cluster = cluster.or_else(|| name.strip_suffix(names::init_secret("").as_str()));
    let waiting = cluster.map(|cluster| waiting(configs, secret, cluster)).unwrap_or_default();
    own.chain(waiting).collect()
}

/// The configs that wait for the cluster's initialization.
pub(crate) fn lock_to_configs(configs: &Configs, lock: &DynamicObject) -> Refs {
    let name = lock.name_any();
    let cluster = name.strip_suffix(names::init_lock("").as_str());
    cluster.map(|cluster| waiting(configs, lock, cluster)).unwrap_or_default()
}

/// The configs of a Cluster that have no bootstrap data yet.
fn waiting(configs: &Configs, beside: &DynamicObject, cluster: &str) -> Refs {
    select(configs, beside, |config| {
        may_be_of(config, cluster) && !config.status.as_ref().is_some_and(|status| status.ready)
    })
}

/// A config without the label may belong to any Cluster of its namespace: only its Machine knows.
fn may_be_of(config: &EtcdadmConfig, cluster: &str) -> bool {
    config.labels().get(names::CLUSTER_NAME_LABEL).is_none_or(|label| label == cluster)
}

fn select(configs: &Configs, beside: &DynamicObject, wanted: impl Fn(&EtcdadmConfig) -> bool) -> Refs {
    let found = configs.state_filter(|config| config.namespace() == beside.namespace() && wanted(config));
    found.iter().map(|config| ObjectRef::from_obj(config.as_ref())).collect()
}

#[cfg(test)]
mod tests;
