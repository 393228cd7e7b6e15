//! What an EtcdCluster must not contain.

#![expect(clippy::needless_pass_by_value, reason = "so that a case reads like a document")]

use crate::refusals::Case;
use crate::server::{merged, object};
use serde_json::{Value, json};

/// A good EtcdCluster, with `change` in its spec.
pub(crate) fn cluster(name: &str, change: &Value) -> Value {
    let template =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "LocalMachineTemplate", "name": "demo"});
    let spec = json!({"replicas": 3, "infrastructureTemplate": template});
    object("EtcdCluster", name, &merged(&spec, change))
}

/// A name with this many characters.
fn named(length: usize) -> Value {
    json!({"metadata": {"name": "n".repeat(length)}})
}

/// A change of the reference to the infrastructure template.
fn template(change: Value) -> Value {
    json!({"spec": {"infrastructureTemplate": change}})
}

fn health_check(change: Value) -> Value {
    json!({"spec": {"healthCheck": change}})
}

fn rollout(change: Value) -> Value {
    json!({"spec": {"rolloutStrategy": change}})
}

fn remediation(change: Value) -> Value {
    json!({"spec": {"remediation": change}})
}

fn replicas(replicas: Value) -> Value {
    json!({"spec": {"replicas": replicas}})
}

fn address_types(types: &[&str]) -> Value {
    json!({"spec": {"addressTypes": types}})
}

fn deletion(deletion: Value) -> Value {
    json!({"spec": {"machineTemplate": {"spec": {"deletion": deletion}}}})
}

fn labels(labels: Value) -> Value {
    json!({"spec": {"machineTemplate": {"metadata": {"labels": labels}}}})
}

pub(crate) fn cases() -> Vec<Case> {
    let long = |length: usize| json!("n".repeat(length));
    let mut cases = vec![
        Case::new("metadata.name", "at most 50 characters", named(51), named(50)),
        Case::new(
            "spec.infrastructureTemplate",
            "Required value",
            json!({"spec": {"infrastructureTemplate": null}}),
            json!({}),
        ),
        Case::new("spec.infrastructureTemplate.kind", "Required value", template(json!({"kind": null})), json!({})),
        Case::new("spec.infrastructureTemplate.name", "Required value", template(json!({"name": null})), json!({})),
        Case::new(
            "spec.infrastructureTemplate",
            "set either apiGroup (the served version is found) or apiVersion",
            template(json!({"apiVersion": "g.example/v1"})),
            json!({}),
        ),
        Case::new(
            "spec.infrastructureTemplate",
            "set either apiGroup (the served version is found) or apiVersion",
            template(json!({"apiGroup": null})),
            template(json!({"apiGroup": null, "apiVersion": "g.example/v1"})),
        ),
        Case::new(
            "spec.infrastructureTemplate.apiVersion",
            "must be <group>/<version>",
            template(json!({"apiGroup": null, "apiVersion": "v1"})),
            template(json!({"apiGroup": null, "apiVersion": "g.example/v1"})),
        ),
        Case::new(
            "spec.infrastructureTemplate.apiGroup",
            "without a version",
            template(json!({"apiGroup": "g.example/v1"})),
            template(json!({"apiGroup": "g.example"})),
        ),
        Case::new(
            "spec.infrastructureTemplate.kind",
            "must be that of a template, such as DockerMachineTemplate",
            template(json!({"kind": "DockerMachine"})),
            template(json!({"kind": "DockerMachineTemplate"})),
        ),
        Case::new(
            "spec.infrastructureTemplate.kind",
            "must be that of a template",
            template(json!({"kind": "Template"})),
            template(json!({"kind": "XTemplate"})),
        ),
        Case::new(
            "spec.infrastructureTemplate.name",
            "at least 1",
            template(json!({"name": ""})),
            template(json!({"name": "a"})),
        ),
        Case::new(
            "spec.infrastructureTemplate.name",
            "253",
            template(json!({"name": long(254)})),
            template(json!({"name": long(253)})),
        ),
        Case::new(
            "spec.healthCheck.intervalSeconds",
            "greater than or equal to 1",
            health_check(json!({"intervalSeconds": 0})),
            health_check(json!({"intervalSeconds": 1})),
        ),
        Case::new(
            "spec.healthCheck.intervalSeconds",
            "less than or equal to 3600",
            health_check(json!({"intervalSeconds": 3601, "unhealthyAfterSeconds": 3601})),
            health_check(json!({"intervalSeconds": 3600, "unhealthyAfterSeconds": 3600})),
        ),
        Case::new(
            "spec.healthCheck.unhealthyAfterSeconds",
            "less than or equal to 86400",
            health_check(json!({"unhealthyAfterSeconds": 86401})),
            health_check(json!({"unhealthyAfterSeconds": 86400})),
        ),
        Case::new(
            "spec.healthCheck",
            "unhealthyAfterSeconds must be at least intervalSeconds",
            health_check(json!({"intervalSeconds": 61})),
            health_check(json!({"intervalSeconds": 60})),
        ),
        Case::new(
            "spec.healthCheck.startupGraceSeconds",
            "greater than or equal to 1",
            health_check(json!({"startupGraceSeconds": 0})),
            health_check(json!({"startupGraceSeconds": 1})),
        ),
        Case::new(
            "spec.healthCheck.startupGraceSeconds",
            "less than or equal to 86400",
            health_check(json!({"startupGraceSeconds": 86401})),
            health_check(json!({"startupGraceSeconds": 86400})),
        ),
        Case::new(
            "spec.healthCheck.intervalSeconds",
            "must be of type integer",
            health_check(json!({"intervalSeconds": "10s"})),
            health_check(json!({"intervalSeconds": 10})),
        ),
        Case::new(
            "spec.remediation.mode",
            "supported values: \"Replace\", \"Report\"",
            remediation(json!({"mode": "report"})),
            remediation(json!({"mode": "Report"})),
        ),
        Case::new(
            "spec.remediation.mode",
            "must be of type string",
            remediation(json!({"mode": true})),
            remediation(json!({"mode": "Replace"})),
        ),
        Case::new(
            "spec.rolloutStrategy.type",
            "supported values: \"RollingUpdate\", \"OnDelete\"",
            rollout(json!({"type": "Recreate"})),
            rollout(json!({"type": "OnDelete"})),
        ),
        Case::new(
            "spec.rolloutStrategy",
            "rollingUpdate is only for type RollingUpdate",
            rollout(json!({"type": "OnDelete", "rollingUpdate": {"maxSurge": 1}})),
            rollout(json!({"type": "OnDelete", "rollingUpdate": {"maxSurge": 0}})),
        ),
        Case::new(
            "spec.rolloutStrategy.rollingUpdate.maxSurge",
            "greater than or equal to 0",
            rollout(json!({"rollingUpdate": {"maxSurge": -1}})),
            rollout(json!({"rollingUpdate": {"maxSurge": 0}})),
        ),
        Case::new(
            "spec.rolloutStrategy.rollingUpdate.maxSurge",
            "must be at least 1 with one replica",
            json!({"spec": {"replicas": 1, "rolloutStrategy": {"rollingUpdate": {"maxSurge": 0}}}}),
            json!({"spec": {"replicas": 1, "rolloutStrategy": {"rollingUpdate": {}}}}),
        ),
        Case::new(
            "spec.rolloutStrategy.rollingUpdate.maxSurge",
            "less than or equal to 7",
            rollout(json!({"rollingUpdate": {"maxSurge": 8}})),
            rollout(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 7}})),
        ),
        Case::new(
            "spec.rolloutStrategy.rollingUpdate.maxSurge",
            "must be of type integer",
            rollout(json!({"rollingUpdate": {"maxSurge": "25%"}})),
            rollout(json!({"rollingUpdate": {"maxSurge": 3}})),
        ),
        Case::new(
            "spec.rolloutAfter",
            "must be a time such as 2026-11-23T04:00:00Z",
            json!({"spec": {"rolloutAfter": "tomorrow"}}),
            json!({"spec": {"rolloutAfter": "2026-11-23T04:00:00Z"}}),
        ),
        // More digits than our types accept.
        Case::new(
            "spec.rolloutAfter",
            "must be a time",
            json!({"spec": {"rolloutAfter": "2026-11-23T04:00:00.1234567890Z"}}),
            json!({"spec": {"rolloutAfter": "2026-11-23T04:00:00.123456789+02:00"}}),
        ),
        Case::new(
            "spec.rolloutAfter",
            "",
            json!({"spec": {"rolloutAfter": "2026-02-30T04:00:00Z"}}),
            json!({"spec": {"rolloutAfter": "2026-02-28T04:00:00Z"}}),
        ),
        Case::new(
            "spec.rolloutBefore.certificatesExpiryDays",
            "greater than or equal to 7",
            json!({"spec": {"rolloutBefore": {"certificatesExpiryDays": 6}}}),
            json!({"spec": {"rolloutBefore": {"certificatesExpiryDays": 7}}}),
        ),
        Case::new(
            "spec.rolloutBefore.certificatesExpiryDays",
            "less than or equal to 180",
            json!({"spec": {"rolloutBefore": {"certificatesExpiryDays": 181}}}),
            json!({"spec": {"rolloutBefore": {"certificatesExpiryDays": 180}}}),
        ),
        Case::new("spec.rolloutStrategy", "must be of type object", rollout(json!("OnDelete")), rollout(json!({}))),
        Case::new("spec.remediation", "must be of type object", remediation(json!("Report")), remediation(json!({}))),
        Case::new(
            "spec.remediation.maxRetry",
            "greater than or equal to 0",
            remediation(json!({"maxRetry": -1})),
            remediation(json!({"maxRetry": 0})),
        ),
        Case::new(
            "spec.remediation.maxRetry",
            "less than or equal to 1000",
            remediation(json!({"maxRetry": 1001})),
            remediation(json!({"maxRetry": 1000})),
        ),
        Case::new(
            "spec.remediation.maxRetry",
            "must be of type integer",
            remediation(json!({"maxRetry": "3"})),
            remediation(json!({"maxRetry": 3})),
        ),
        Case::new(
            "spec.remediation.retryPeriodSeconds",
            "greater than or equal to 0",
            remediation(json!({"retryPeriodSeconds": -1})),
            remediation(json!({"retryPeriodSeconds": 0})),
        ),
        Case::new(
            "spec.remediation.retryPeriodSeconds",
            "less than or equal to 86400",
            remediation(json!({"retryPeriodSeconds": 86401})),
            remediation(json!({"retryPeriodSeconds": 86400})),
        ),
        Case::new(
            "spec.remediation.retryPeriodSeconds",
            "must be of type integer",
            remediation(json!({"retryPeriodSeconds": "10m"})),
            remediation(json!({"retryPeriodSeconds": 600})),
        ),
        Case::new(
            "spec.remediation.minHealthyPeriodSeconds",
            "greater than or equal to 0",
            remediation(json!({"minHealthyPeriodSeconds": -1})),
            remediation(json!({"minHealthyPeriodSeconds": 0})),
        ),
        Case::new(
            "spec.remediation.minHealthyPeriodSeconds",
            "less than or equal to 604800",
            remediation(json!({"minHealthyPeriodSeconds": 604_801})),
            remediation(json!({"minHealthyPeriodSeconds": 604_800})),
        ),
        Case::new(
            "spec.remediation.minHealthyPeriodSeconds",
            "must be of type integer",
            remediation(json!({"minHealthyPeriodSeconds": 0.5})),
            remediation(json!({"minHealthyPeriodSeconds": 1})),
        ),
        Case::new(
            "spec.addressTypes",
            "names one kind twice",
            address_types(&["InternalIP", "Hostname", "InternalIP"]),
            address_types(&["Hostname", "InternalIP"]),
        ),
        Case::new(
            "spec.addressTypes",
            "should have at least 1 items",
            address_types(&[]),
            address_types(&["ExternalDNS"]),
        ),
        Case::new(
            "spec.addressTypes[0]",
            "supported values: \"InternalIP\", \"ExternalIP\", \"InternalDNS\", \"ExternalDNS\", \"Hostname\"",
            address_types(&["internalIP"]),
            address_types(&["InternalIP"]),
        ),
        Case::new(
            "spec.machineTemplate",
            "label cluster.x-k8s.io/control-plane must not be on etcd's Machines",
            labels(json!({"cluster.x-k8s.io/control-plane": ""})),
            labels(json!({"example.org/control-plane": ""})),
        ),
        Case::new(
            "spec.metricsClientSecret",
            "must be of type boolean",
            json!({"spec": {"metricsClientSecret": "Managed"}}),
            json!({"spec": {"metricsClientSecret": true}}),
        ),
    ];
    for (at, name) in [
        ("spec.machineTemplate.spec.deletion.nodeDrainTimeoutSeconds", "nodeDrainTimeoutSeconds"),
        ("spec.machineTemplate.spec.deletion.nodeVolumeDetachTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds"),
        ("spec.machineTemplate.spec.deletion.nodeDeletionTimeoutSeconds", "nodeDeletionTimeoutSeconds"),
    ] {
        let seconds = |seconds: i32| deletion(json!({name: seconds}));
        cases.push(Case::new(at, "greater than or equal to 0", seconds(-1), seconds(0)));
    }
    for bad in [0, 2, 4, 6, 8, 9, -1, 100] {
        cases.push(Case::new(
            "spec.replicas",
            "replicas must be 1, 3, 5 or 7",
            replicas(json!(bad)),
            replicas(json!(5)),
        ));
    }
    for good in [1, 3, 7] {
        cases.push(Case::new(
            "spec.replicas",
            "must be of type integer",
            replicas(json!("three")),
            replicas(json!(good)),
        ));
    }
    cases
}
