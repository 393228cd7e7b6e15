//! Whether a manager runs, and looks after the namespace.

use super::{Finding, Installation};

pub(super) fn check(installation: &Installation) -> Vec<Finding> {
    let managers = match &installation.managers {
        Err(why) => return super::unread("the manager's Deployment", why),
        Ok(managers) => managers,
    };
    if managers.is_empty() {
        return vec![Finding::warning(
            "no Deployment of the manager is found: nothing happens without one",
            "install it (docs/install.md); if it runs elsewhere, look there",
        )];
    }
    let mut found = Vec::new();
    for manager in managers {
        let name = format!("{}/{}", manager.namespace, manager.name);
        found.push(match manager.available {
            0 => Finding::fault(
                format!("{name}: none of {} Pods is available", manager.replicas),
                format!("kubectl -n {} describe pods, and logs deploy/{}", manager.namespace, manager.name),
            ),
            available => {
                Finding::ok(format!("{name}: {available} of {} available, {}", manager.replicas, manager.image))
            }
        });
        for (argument, what) in [
            ("--namespace", "objects of namespace"),
            ("--watch-filter", "objects whose label cluster.x-k8s.io/watch-filter is"),
        ] {
            if let Some(value) = manager.argument(argument).filter(|value| !value.is_empty()) {
                found.push(Finding::warning(format!("{name} looks after {what} {value} only"), ""));
            }
        }
    }
    let namespace = &installation.namespace;
    if !managers.iter().any(|manager| manager.looks_after(namespace)) {
        found.push(Finding::warning(
            format!("no manager that is found looks after namespace {namespace}: nothing happens there without one"),
            "install one for it (docs/install.md, For one namespace); if one runs elsewhere, look there",
        ));
    }
    found
}
