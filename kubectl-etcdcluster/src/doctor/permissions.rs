//! Whether the manager has the permissions of its role in the manifests.

use super::{Finding, Installation};
use crate::text::count;
use k8s_openapi::api::rbac::v1::ClusterRole;
use std::collections::BTreeSet;

/// The role in the manifests.
const ROLE: &str = include_str!("../../../config/rbac/manager_role.yaml");
/// For the kinds that users choose, the role has a star. These checks ask about single resources instead.
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
/// What the manager does with templates, and with the objects that are cloned from them.
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

/// The requests that the manager needs to make. `templates` are the CRDs of the infrastructure templates in use.
#[must_use]
pub fn permissions(templates: &BTreeSet<String>) -> Vec<Permission> {
    // The role is compiled into the program, and a test parses it.
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
