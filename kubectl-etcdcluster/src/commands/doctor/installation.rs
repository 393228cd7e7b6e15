//! Reads what is installed.

use crate::doctor::{Installation, Permission, permissions};
use crate::facts::{CORE_LABEL, Manager, PROVIDER_LABEL, Read};
use crate::gather::{Gatherer, crd_names, why};
use crate::reader::now;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use http::header::DATE;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::api::{Api, ListParams, PostParams};
use kube::client::Body;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// How many questions about permissions run at the same time.
const AT_A_TIME: usize = 8;

/// The installation. `templates` are the CRDs of the infrastructure templates in use.
pub(super) async fn read(client: &Client, gatherer: &Gatherer, templates: BTreeSet<String>) -> Installation {
    let namespace = gatherer.namespace();
    let managers = gatherer.managers(PROVIDER_LABEL).await;
    let looks_after = |manager: &&Manager| manager.looks_after(namespace);
    let permissions = match managers.as_ref().map(|managers| managers.iter().find(looks_after)) {
        Ok(Some(manager)) => of_manager(client, namespace, manager, &templates).await,
        Ok(None) => Err(format!("no Deployment of a manager of namespace {namespace} is found")),
        Err(why) => Err(why.clone()),
    };
    let crds = crd_names().into_iter().chain(templates).collect();
    let server_time = server_time(client).await;
    Installation {
        namespace: namespace.to_owned(),
        now: now(),
        server_time,
        kubernetes: client.apiserver_version().await.map(|version| version.git_version).map_err(why),
        crds: gatherer.crds(&crds).await,
        policies: policies(client).await,
        managers,
        core: gatherer.managers(CORE_LABEL).await,
        permissions,
    }
}

/// The time in the header Date of an answer.
async fn server_time(client: &Client) -> Read<Timestamp> {
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(why)?;
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok()).ok_or("no header Date")?;
    time(date)
}

fn time(date: &str) -> Read<Timestamp> {
    rfc2822::parse(date).map(|found| found.timestamp()).map_err(|error| format!("header Date: {error}"))
}

/// Policies that have a binding of the same name.
async fn policies(client: &Client) -> Read<BTreeSet<String>> {
    let validating = names::<ValidatingAdmissionPolicy>(client).await?;
    let bound = names::<ValidatingAdmissionPolicyBinding>(client).await?;
    let mutating = names::<MutatingAdmissionPolicy>(client).await?;
    let bound_too = names::<MutatingAdmissionPolicyBinding>(client).await?;
    let pairs = [(validating, bound), (mutating, bound_too)];
    Ok(pairs.iter().flat_map(|(policies, bindings)| policies.intersection(bindings).cloned()).collect())
}

/// Names of all objects of a kind; none if the kind is not served.
async fn names<K>(client: &Client) -> Read<BTreeSet<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match Api::<K>::all(client.clone()).list_metadata(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(BTreeSet::new()),
        other => Ok(other.map_err(why)?.items.iter().map(ResourceExt::name_any).collect()),
    }
}

/// Asks the API server for each request of the manager whether its service account may make it.
async fn of_manager(
    client: &Client,
    namespace: &str,
    manager: &Manager,
    templates: &BTreeSet<String>,
) -> Read<Vec<Permission>> {
    let asked = permissions(templates).into_iter().map(|permission| async move {
        let review = review(namespace, manager, &permission);
        let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await.map_err(why)?;
        Ok::<_, String>(Permission { allowed: answer.status.is_some_and(|status| status.allowed), ..permission })
    });
    let mut found: Vec<Permission> = stream::iter(asked).buffer_unordered(AT_A_TIME).try_collect().await?;
    found.sort();
    Ok(found)
}

fn review(namespace: &str, manager: &Manager, permission: &Permission) -> SubjectAccessReview {
    let (of, account) = (&manager.namespace, &manager.service_account);
    let (resource, subresource) = match permission.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (permission.resource.as_str(), None),
    };
    let attributes = ResourceAttributes {
        group: Some(permission.group.clone()),
        namespace: Some(namespace.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(permission.verb.clone()),
        ..ResourceAttributes::default()
    };
    let groups = [
        "system:authenticated".to_owned(),
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{of}"),
    ];
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{of}:{account}")),
            groups: Some(groups.to_vec()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        assert_eq!(time("Mon, 23 Nov 2026 08:00:00 GMT").unwrap(), crate::fixture::NOW);
        assert!(time("yesterday").unwrap_err().starts_with("header Date"));
    }

    #[test]
    fn the_question_is_about_the_managers_service_account() {
        let manager = Manager {
            namespace: "system".to_owned(),
            name: "manager".to_owned(),
            image: String::new(),
            arguments: Vec::new(),
            service_account: "m".to_owned(),
            replicas: 1,
            available: 1,
        };
        let all = permissions(&BTreeSet::new());
        let status = all.iter().find(|permission| permission.resource == "etcdclusters/status").unwrap();
        let review = review("default", &manager, status).spec;
        assert_eq!(review.user.as_deref(), Some("system:serviceaccount:system:m"));
        let attributes = review.resource_attributes.unwrap();
        let of = |value: &Option<String>| value.clone().unwrap_or_default();
        assert_eq!(
            (of(&attributes.resource), of(&attributes.subresource)),
            ("etcdclusters".to_owned(), "status".to_owned())
        );
        assert_eq!((of(&attributes.verb), of(&attributes.namespace)), ("patch".to_owned(), "default".to_owned()));
    }
}
