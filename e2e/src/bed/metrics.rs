//! Metrics as Prometheus reads them: over TLS, with the token of a service account.

use crate::until::until;
use anyhow::{Context, Result, bail, ensure};
use http::Request;
use http::header::AUTHORIZATION;
use http::request::Builder;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::json;
use std::time::Duration;

/// How long the API server may take to enforce a new binding.
const SOON: Duration = Duration::from_secs(20);

/// Makes a service account, and returns its token. `role` is a ClusterRole with one path, which is bound to the service
/// account. Without a role, the service account may do nothing.
///
/// # Errors
/// When the API server refuses something, or the permission does not come into force.
pub async fn reader(client: &Client, namespace: &str, name: &str, role: Option<&str>) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    if let Some(role) = role {
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": format!("{namespace}-{name}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }))?;
        Api::all(client.clone()).create(&PostParams::default(), &binding).await?;
        // The manager caches the API server's answer for a minute.
        let rules = Api::<ClusterRole>::all(client.clone()).get(role).await?.rules.unwrap_or_default();
        let rule = rules.first().context("the ClusterRole has no rule")?;
        let path = rule.non_resource_urls.as_ref().and_then(|urls| urls.first());
        let review: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": {
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "nonResourceAttributes": {"path": path, "verb": rule.verbs.first()},
        }}))?;
        until(format!("the service account may do what {role} permits"), SOON, async || {
            let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed).then_some(()))
        })
        .await?;
    }
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    token.status.and_then(|status| status.token).context("no token")
}

/// The metrics that a manager in this world serves over TLS on a port, or the status with which it refuses.
///
/// # Errors
/// When it does not answer.
pub async fn metrics(port: u16, token: Option<&str>) -> Result<Result<String, u16>> {
    let answer = send(port, Request::get("/metrics"), token, "").await?;
    if let Ok(text) = &answer {
        ensure!(text.ends_with("# EOF\n"), "the end of the metrics is missing");
    }
    Ok(answer)
}

/// Sets what a manager logs, at its secure server on a port of this computer. Returns the filter with which the manager
/// answers, or the status with which it refuses.
///
/// # Errors
/// When it does not answer.
pub async fn set_log_level(port: u16, token: Option<&str>, wanted: &str) -> Result<Result<String, u16>> {
    send(port, Request::put("/debug/flags/v"), token, wanted).await
}

async fn send(port: u16, request: Builder, token: Option<&str>, body: &str) -> Result<Result<String, u16>> {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
    // No CA has signed the manager's certificate.
    config.accept_invalid_certs = true;
    let request = match token {
        Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
        None => request,
    };
    match Client::try_from(config)?.request_text(request.body(body.as_bytes().to_vec())?).await {
        Ok(text) => Ok(Ok(text)),
        Err(kube::Error::Api(status)) => Ok(Err(status.code)),
        Err(error) => bail!("https://127.0.0.1:{port}: {error:#}"),
    }
}
