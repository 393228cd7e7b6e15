//! The infrastructure template, its kind, and the kind's contract.

use super::{Finding, Installation, Subject, text};
use crate::facts::Crd;
use controller_support::kinds::CLUSTER_API_CONTRACTS;

pub(super) fn check(subject: &Subject, installation: &Installation) -> Vec<Finding> {
    let of = |field: &str| text(&subject.etcd, &format!("/spec/infrastructureTemplate/{field}")).to_owned();
    let (kind, name) = (of("kind"), of("name"));
    if kind.is_empty() || name.is_empty() {
        return vec![Finding::fault(
            "spec.infrastructureTemplate has no kind or no name",
            "name the template of etcd's machines: apiGroup, kind, name",
        )];
    }
    let crd = match &subject.template_crd {
        Err(why) => return super::unread(&format!("kind {kind}"), why),
        Ok(None) => {
            return vec![Finding::fault(
                format!("kind {kind} is not served"),
                "install its infrastructure provider, or correct spec.infrastructureTemplate",
            )];
        }
        Ok(Some(crd)) => crd,
    };
    let mut found = vec![match &subject.template {
        Err(why) => Finding::unseen(format!("{kind} {name} cannot be read: {why}"), ""),
        Ok(None) => Finding::fault(
            format!("{kind} {name} does not exist in namespace {}", subject.namespace),
            "apply it; it has to be in the namespace of the EtcdCluster",
        ),
        Ok(Some(template)) if template.pointer("/spec/template/spec").is_none() => {
            Finding::fault(format!("{kind} {name} has no spec.template.spec"), "correct the template")
        }
        Ok(Some(_)) => Finding::ok(format!("{kind} {name} is there")),
    }];
    let crd = installation.crds.as_ref().ok().and_then(|crds| crds.iter().find(|found| found.name == *crd));
    let has_contract = |crd: &Crd| CLUSTER_API_CONTRACTS.iter().any(|contract| !crd.versions_for(contract).is_empty());
    if let Some(crd) = crd.filter(|crd| !has_contract(crd)) {
        found.push(Finding::fault(
            format!("CRD {} has no label of a contract of Cluster API", crd.name),
            format!("install a release of its provider that sets {}", CLUSTER_API_CONTRACTS.join(" or ")),
        ));
    }
    found
}
