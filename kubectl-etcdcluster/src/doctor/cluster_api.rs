//! The version of Cluster API and of Kubernetes.

use super::{Finding, Installation};

/// Minor versions of Cluster API 1 that are tested.
const TESTED: std::ops::RangeInclusive<u64> = 12..=14;

pub(super) fn check(installation: &Installation) -> Vec<Finding> {
    let mut found = match &installation.kubernetes {
        Err(why) => super::unread("the API server's version", why),
        Ok(version) => vec![Finding::ok(format!("the management cluster runs Kubernetes {version}"))],
    };
    match &installation.core {
        Err(why) => found.extend(super::unread("Cluster API's Deployment", why)),
        Ok(managers) if managers.is_empty() => found.push(Finding::unseen(
            "no Deployment has the label of Cluster API's manager: its version is not known",
            "if it was not installed by clusterctl or the operator, look at its image",
        )),
        Ok(managers) => found.extend(managers.iter().map(|manager| {
            let shown = manager.version().unwrap_or("(no tag)");
            match minor(shown) {
                Some((1, minor)) if TESTED.contains(&minor) => Finding::ok(format!("Cluster API {shown}")),
                Some(_) => Finding::warning(
                    format!("Cluster API {shown} is not tested with this provider"),
                    format!("use 1.{} to 1.{}", TESTED.start(), TESTED.end()),
                ),
                None => Finding::unseen(
                    format!("the version of Cluster API cannot be told from its image {}", manager.image),
                    "",
                ),
            }
        })),
    }
    found
}

/// Major and minor number of `v1.14.0`.
fn minor(version: &str) -> Option<(u64, u64)> {
    let mut numbers = version.strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
