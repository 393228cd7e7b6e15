//! How far the rollout of a control plane's present spec is, as Cluster API's contracts for control planes report it.

use kube::api::DynamicObject;

/// Counts of machines, and whether they refer to the present spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Its controller has observed the present spec.
    observed: bool,
    /// Machines that exist.
    replicas: Option<i64>,
    /// How many of these match the present spec.
    up_to_date: Option<i64>,
}

impl Rollout {
    /// Reads the shape of either contract.
    pub fn read(object: &DynamicObject) -> Self {
        let number = |name: &str| object.data.pointer(name).and_then(serde_json::Value::as_i64);
        let generation = object.metadata.generation;
        Self {
            observed: generation.is_some() && number("/status/observedGeneration") == generation,
            replicas: number("/status/replicas"),
            up_to_date: number("/status/upToDateReplicas").or_else(|| number("/status/updatedReplicas")),
        }
    }

    /// Whether there is a machine, and every machine was made from the present spec. A control plane that does not
    /// report this is not complete: v1beta1 leaves out counts of 0, a control plane that has only begun to report
    /// counts 0 of 0, and a provider may not report counts at all.
    pub fn complete(self) -> bool {
        self.observed && self.has_machines() && self.replicas == self.up_to_date
    }

    /// Its controller has observed the present spec.
    pub fn is_observed(self) -> bool {
        self.observed
    }

    /// It reports that a machine exists.
    pub fn has_machines(self) -> bool {
        self.replicas.is_some_and(|replicas| replicas > 0)
    }

    /// The progress of the rollout, for people.
    pub fn progress(self) -> String {
        match (self.observed, self.up_to_date, self.replicas) {
            (false, ..) => "it has not reported on them yet".to_owned(),
            (true, Some(done), Some(all)) => format!("{done} of {all} are up to date"),
            (true, ..) => "it does not say how many are up to date".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn it_is_complete_only_if_its_controller_says_so_of_the_present_spec() {
        let complete = |status: Value| {
            let object = json!({"metadata": {"name": "cp", "generation": 4}, "status": status});
            Rollout::read(&serde_json::from_value(object).unwrap()).complete()
        };
        for (status, expected) in [
            // v1beta2.
            (json!({"observedGeneration": 4, "replicas": 3, "upToDateReplicas": 3}), true),
            (json!({"observedGeneration": 4, "replicas": 0, "upToDateReplicas": 0}), false),
            (json!({"observedGeneration": 4, "replicas": 4, "upToDateReplicas": 1}), false),
            (json!({"observedGeneration": 4, "replicas": 4, "upToDateReplicas": 3}), false),
            (json!({"observedGeneration": 3, "replicas": 3, "upToDateReplicas": 3}), false),
            (json!({"replicas": 3, "upToDateReplicas": 3}), false),
            // Both.
            (json!({"observedGeneration": 4, "replicas": 3, "upToDateReplicas": 2, "updatedReplicas": 3}), false),
            // v1beta1.
            (json!({"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3}), true),
            (json!({"observedGeneration": 4, "replicas": 1, "updatedReplicas": 0}), false),
            (json!({"observedGeneration": 4, "replicas": 1}), false),
            (json!({"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3}), false),
            // Nothing is reported.
            (json!({"observedGeneration": 4}), false),
            (json!({}), false),
            (json!({"observedGeneration": 4, "replicas": "3", "upToDateReplicas": "3"}), false),
        ] {
            assert_eq!(complete(status.clone()), expected, "{status}");
        }
        let unversioned = json!({"metadata": {"name": "cp"}, "status": {"replicas": 1, "upToDateReplicas": 1}});
        assert!(!Rollout::read(&serde_json::from_value(unversioned).unwrap()).complete());
    }
}
