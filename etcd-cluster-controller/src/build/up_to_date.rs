//! Whether a Machine is what would be made now. Differences without a meaning do not count: a field that is empty or
//! not set, a version with or without `v`. If it is not known what a Machine was made from, the Machine counts as a
//! match.

use super::{cloned_from, expires_soon, version};
use crate::observation::Observation;
use api::EtcdCluster;
use api::etcdadm_config::{CloudInitConfig, EtcdadmConfigSpec, Format};
use controller_support::external::MachineView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;

/// By how much the clocks of the manager and of the API server may differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(10);

/// Whether a Machine matches the spec.
#[must_use]
pub fn is_up_to_date(observation: &Observation, machine: &MachineView) -> bool {
    let runs = machine.version.as_deref();
    let config = observation.configs.get(&machine.name);
    let runs_it = || runs.is_none_or(|runs| bare(runs) == bare(version(&observation.etcd)));
    config.map_or_else(runs_it, |config| matches_config(&observation.etcd, config, runs))
        && is_cloned_from_template(&observation.etcd, &machine.annotations)
        && !is_from_before(observation, machine)
        && !expires_soon(observation, machine)
}

/// From when on the Machines that were made before `rolloutAfter` are replaced. The API server's clock says when a
/// Machine was made. If our clock is ahead of it, a Machine that is made after `rolloutAfter` by our clock could seem
/// to be made before it, and would be replaced as well.
#[must_use]
pub fn replaces_from(etcd: &EtcdCluster) -> Option<Timestamp> {
    let Time(after) = etcd.spec.rollout_after.as_ref()?;
    after.checked_add(CLOCKS_DIFFER).ok()
}

/// Whether a Machine was made before `rolloutAfter`, and that time has come.
fn is_from_before(observation: &Observation, machine: &MachineView) -> bool {
    let has_come = replaces_from(&observation.etcd).is_some_and(|from| from <= observation.now);
    let after = observation.etcd.spec.rollout_after.as_ref().filter(|_| has_come);
    after.is_some_and(|after| machine.created.as_ref().is_some_and(|created| created.0 < after.0))
}

/// Whether a config means the same as the spec. `runs`: the version of the Machine, which counts if its config has
/// none, as with earlier releases.
#[must_use]
pub fn matches_config(etcd: &EtcdCluster, config: &EtcdadmConfigSpec, runs: Option<&str>) -> bool {
    let wanted = version(etcd);
    let made_for = config.etcd_version().or(runs).unwrap_or(wanted);
    bare(made_for) == bare(wanted) && meaning(config) == meaning(&etcd.spec.etcdadm_config_spec)
}

/// Whether an object was cloned from the template in the spec, or does not say what it was cloned from.
pub(crate) fn is_cloned_from_template(etcd: &EtcdCluster, annotations: &BTreeMap<String, String>) -> bool {
    cloned_from(etcd).iter().all(|(key, wanted)| annotations.get(key).is_none_or(|from| from == wanted))
}

fn bare(version: &str) -> &str {
    version.trim_start_matches('v')
}

/// A config without its version, without empty fields, and without fields that only state a default.
fn meaning(config: &EtcdadmConfigSpec) -> Value {
    let mut config = config.clone();
    config.version = None;
    if let Some(cloud_init) = &mut config.cloud_init_config {
        cloud_init.version = None;
    }
    config.cloud_init_config = config.cloud_init_config.filter(|cloud_init| *cloud_init != CloudInitConfig::default());
    config.format = config.format.filter(|format| *format != Format::default());
    if let Some(ntp) = &mut config.ntp {
        ntp.enabled = ntp.enabled.filter(|enabled| !enabled);
    }
    for file in &mut config.files {
        file.append = file.append.filter(|append| *append);
    }
    let mut value = serde_json::to_value(config).unwrap_or_default();
    prune(&mut value);
    value
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, field| !is_empty(field));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Story, name};
    use api::names;
    use serde_json::json;

    fn spec(value: Value) -> EtcdadmConfigSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_means_the_same_is_the_same() {
        let mut story = Story::new(3);
        story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.16");
        let matches = |story: &Story, config: Value, runs| matches_config(&story.observation.etcd, &spec(config), runs);
        assert!(matches(&story, json!({}), None));
        assert!(matches(&story, json!({"users": [], "etcdadmArgs": {}}), Some("v3.6.16")));
        assert!(matches(&story, json!({"version": "v3.6.16"}), None));
        assert!(!matches(&story, json!({}), Some("v3.6.15")), "made by a release with another default");
        assert!(!matches(&story, json!({"version": "3.6.15"}), None));
        assert!(!matches(&story, json!({"preEtcdadmCommands": ["true"]}), None));
        story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.17");
        story.etcd().spec.etcdadm_config_spec = spec(json!({"cloudInitConfig": {"version": "3.6.17"}}));
        assert!(matches(&story, json!({"version": "3.6.17", "cloudInitConfig": {}}), None));
        assert!(matches(&story, json!({"version": "3.6.17"}), None));
        let said = json!({"version": "3.6.17", "format": "cloud-config", "ntp": {"enabled": true},
                          "files": [{"path": "/a", "append": false}]});
        story.etcd().spec.etcdadm_config_spec = spec(json!({"files": [{"path": "/a"}]}));
        assert!(matches(&story, said, None), "what goes without saying");
        assert!(!matches(&story, json!({"version": "3.6.17", "files": [{"path": "/a", "append": true}]}), None));
    }

    #[test]
    fn a_machine_is_compared_by_its_config_and_its_template() {
        let mut story = Story::with_voters(3, 3);
        let is_up_to_date = |story: &Story| is_up_to_date(&story.observation, &story.observation.machines[&name(0)]);
        assert!(is_up_to_date(&story));
        story.etcd().spec.replicas = 5;
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"deletion": {"nodeDrainTimeoutSeconds": 60}}});
        story.etcd().spec.machine_template = Some(serde_json::from_value(template).unwrap());
        story.etcd().spec.metrics_client_secret = true;
        assert!(is_up_to_date(&story), "none of them makes another machine");
        story.etcd().spec.infrastructure_template.name = "bigger".to_owned();
        assert!(!is_up_to_date(&story));
        let machine = story.observation.machines.get_mut(&name(0)).unwrap();
        machine.annotations.remove(names::CLONED_FROM_NAME_ANNOTATION);
        assert!(is_up_to_date(&story), "one of an earlier release does not say");
        story.observation.configs.remove(&name(0));
        assert!(is_up_to_date(&story), "nothing is known of it");
        story.observation.machines.get_mut(&name(0)).unwrap().version = Some("v3.6.15".to_owned());
        assert!(!is_up_to_date(&story), "its config is gone, and its Machine says which version it has");
    }
}
