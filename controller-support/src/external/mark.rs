//! The mark that asks the owner of a Machine to replace it: set by a MachineHealthCheck, or by a person.

use super::condition;
use api::names;
use kube::ResourceExt;
use kube::api::DynamicObject;

/// Reasons that mean nothing for a Machine that never has a Node, in the words of the contracts v1beta1 and v1beta2.
///
/// Source: `needsRemediation` in Cluster API 1.14.0, machinehealthcheck_targets.go.
const ABOUT_A_MISSING_NODE: [&str; 3] = ["NodeStartupTimeout", "NodeDeleted", "NodeNotFound"];

/// Who wants a Machine replaced, and why. For people.
///
/// A MachineHealthCheck never removes its conditions from a Machine without a Node. To have them ignored, give the
/// Machine the annotation that keeps MachineHealthChecks away.
pub(super) fn read(machine: &DynamicObject) -> Option<String> {
    let annotation = names::REMEDIATE_MACHINE_ANNOTATION;
    if machine.annotations().contains_key(annotation) {
        return Some(format!("annotation {annotation}"));
    }
    let reason = failed_check(machine)?;
    let counts = !ABOUT_A_MISSING_NODE.contains(&reason)
        && !machine.annotations().contains_key(names::SKIP_REMEDIATION_ANNOTATION);
    counts.then(|| format!("MachineHealthCheck: {reason}"))
}

/// Why a MachineHealthCheck has failed, if it leaves the replacement of the Machine to its owner.
fn failed_check(machine: &DynamicObject) -> Option<&str> {
    let failed = |type_: &str| condition(&machine.data, type_, "False");
    failed("OwnerRemediated")?;
    Some(failed("HealthCheckSucceeded")?["reason"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn machine(annotations: &Value, conditions: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "metadata": {"name": "demo-etcd-0", "annotations": annotations}, "status": {"conditions": conditions}
        }))
        .unwrap()
    }

    fn checked(reason: &str) -> Value {
        json!([{"type": "HealthCheckSucceeded", "status": "False", "reason": reason},
               {"type": "OwnerRemediated", "status": "False", "reason": "WaitingForRemediation"}])
    }

    #[test]
    fn a_failed_health_check_marks_in_the_words_of_either_contract() {
        for reason in ["UnhealthyMachine", "HasRemediateAnnotation", "HasRemediateMachineAnnotation"] {
            let mark = read(&machine(&json!({}), &checked(reason)));
            assert_eq!(mark, Some(format!("MachineHealthCheck: {reason}")));
        }
        let v1beta1 = json!([
            {"type": "HealthCheckSucceeded", "status": "False", "severity": "Warning", "reason": "UnhealthyMachine"},
            {"type": "OwnerRemediated", "status": "False", "severity": "Warning", "reason": "WaitingForRemediation"}]);
        assert!(read(&machine(&json!({}), &v1beta1)).is_some());
    }

    #[test]
    fn a_missing_node_is_no_reason() {
        for reason in ABOUT_A_MISSING_NODE {
            assert_eq!(read(&machine(&json!({}), &checked(reason))), None, "{reason}");
        }
    }

    #[test]
    fn both_conditions_have_to_be_false() {
        let mut conditions = checked("UnhealthyMachine");
        conditions[0]["status"] = json!("True");
        assert_eq!(read(&machine(&json!({}), &conditions)), None, "it is healthy again");
        let mut conditions = checked("UnhealthyMachine");
        conditions[1]["type"] = json!("ExternallyRemediated");
        assert_eq!(read(&machine(&json!({}), &conditions)), None, "somebody else sees to it");
        assert_eq!(read(&machine(&json!({}), &json!([]))), None);
    }

    #[test]
    fn a_person_may_ask_for_it_and_may_refuse_what_a_health_check_asks_for() {
        let asked = json!({"cluster.x-k8s.io/remediate-machine": ""});
        assert!(read(&machine(&asked, &checked("NodeStartupTimeout"))).unwrap().contains("remediate-machine"));
        let refused = json!({"cluster.x-k8s.io/skip-remediation": ""});
        assert_eq!(read(&machine(&refused, &checked("UnhealthyMachine"))), None);
    }
}
