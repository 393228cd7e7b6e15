//! What the manager may do, by what its role in the manifests says.

use super::{Finding, Installation};
use crate::text::count;
use k8s_openapi::api::rbac::v1::ClusterRole;
use std::collections::BTreeSet;

/// The role as it is installed.
const ROLE: &str = include_str!("../../../config/rbac/manager_role.yaml");
/// Its rule for kinds that users choose has a star; asked is one resource.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// What is done to templates, and to what is cloned from them.
const TEMPLATE_VERBS: [&str; 3] = ["list", "watch", "patch"];
const MACHINE_VERBS: [&str; 3] = ["get", "create", "delete"];

/// A request that the manager makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// API group.
    pub group: String,
    /// Resource in the plural, with its subresource behind a slash.
    pub resource: String,
    /// Verb.
    pub verb: String,
    /// Whether the manager's service account may make it.
    pub allowed: bool,
}

/// What the manager needs. `templates` are the CRDs of the infrastructure templates in use.
#[must_use]
pub fn permissions(templates: &BTreeSet<String>) -> Vec<Permission> {
    // It is in the program: a test reads it.
    let role: ClusterRole = serde_yaml::from_str(ROLE).unwrap_or_default();
    let permission = |group: &str, resource: &str, verb: &str| Permission {
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb: verb.to_owned(),
        allowed: false,
    };
    let mut found = Vec::new();
    for rule in role.rules.into_iter().flatten() {
        for group in rule.api_groups.iter().flatten().filter(|group| *group != INFRASTRUCTURE) {
            for resource in rule.resources.iter().flatten() {
                found.extend(rule.verbs.iter().map(|verb| permission(group, resource, verb)));
            }
        }
    }
    for (plural, group) in templates.iter().filter_map(|crd| crd.split_once('.')) {
        found.extend(TEMPLATE_VERBS.iter().map(|verb| permission(group, plural, verb)));
        let machines = plural.strip_suffix("templates").map(|kind| format!("{kind}s")).unwrap_or_default();
        found.extend(MACHINE_VERBS.iter().map(|verb| permission(group, &machines, verb)));
    }
    found
}

pub(super) fn check(installation: &Installation) -> Vec<Finding> {
    let permissions = match &installation.permissions {
        Err(why) => return super::unread("what the manager may do", why),
        Ok(permissions) => permissions,
    };
    let lacking = permissions.iter().filter(|permission| !permission.allowed);
    let lacking: Vec<String> = lacking
        .map(|permission| match permission.group.as_str() {
            "" => format!("{} {}", permission.verb, permission.resource),
            group => format!("{} {}.{group}", permission.verb, permission.resource),
        })
        .collect();
    vec![match lacking.as_slice() {
        [] => Finding::ok(format!("the manager may do all of {}", count(permissions.len(), "request"))),
        lacking => Finding::fault(
            format!("the manager may not: {}", lacking.join("; ")),
            "apply again what is installed (config/default, another folder of config, or the release) of the manager's version; kinds of another group than infrastructure.cluster.x-k8s.io need a role of their own (docs/troubleshooting.md, Nothing happens)",
        ),
    }]
}
