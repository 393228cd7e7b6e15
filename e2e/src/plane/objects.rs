//! CRDs and webhook configurations, as a plane without Services needs them.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use kube::api::{DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::apply::apply_object;
use crate::until::until;

/// How long a CRD may take to be served. It takes well under a second, but a busy computer may have to deal with
/// dozens.
const SERVED: Duration = Duration::from_secs(30);

/// Makes every webhook in `object` reachable without a Service: at `host` and `port`, under its own path, and with
/// `authority` (PEM) as its CA.
pub(super) fn point_webhooks_at(object: &mut Value, host: &str, port: u16, authority: &str) {
    match object {
        Value::Object(fields) => {
            if let Some(config) = fields.get_mut("clientConfig")
                && let Some(path) = config.get("service").map(|service| service["path"].as_str().unwrap_or("/"))
            {
                *config = json!({
                    "url": format!("https://{host}:{port}{path}"),
                    "caBundle": STANDARD.encode(authority),
                });
            }
            fields.values_mut().for_each(|value| point_webhooks_at(value, host, port, authority));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| point_webhooks_at(value, host, port, authority)),
        _ => (),
    }
}

/// Applies `objects`, all at the same time.
pub(super) async fn apply_all(client: &Client, objects: &[Value]) -> Result<()> {
    try_join_all(objects.iter().map(|object| apply_object(client, object))).await?;
    Ok(())
}

/// Applies CRDs and waits until the server answers for every version they serve.
pub(super) async fn apply_crds(client: &Client, crds: &[Value]) -> Result<()> {
    apply_all(client, crds).await?;
    try_join_all(crds.iter().map(|crd| served(client, crd))).await?;
    Ok(())
}

/// Waits until discovery knows every version of `crd` and its objects can be listed. That comes after the condition
/// Established, and a manager that starts in between gives up. For a changed CRD, discovery may know a version before
/// the part of the server that answers requests for that version does.
async fn served(client: &Client, crd: &Value) -> Result<()> {
    let text =
        |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).with_context(|| format!("a CRD has {pointer}"));
    let (name, group, kind) = (text("/metadata/name")?, text("/spec/group")?, text("/spec/names/kind")?);
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let Some(version) = version["name"].as_str().filter(|_| version["served"] == true) else {
            continue;
        };
        let kind = GroupVersionKind::gvk(group, version, kind);
        until(format!("CRD {name} is served as {version}"), SERVED, async || {
            let (resource, _) = pinned_kind(client, &kind).await?;
            Api::<DynamicObject>::all_with(client.clone(), &resource)
                .list_metadata(&ListParams::default().limit(1))
                .await?;
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_becomes_a_url_wherever_it_is_and_other_urls_stay() {
        let mut object = json!({
            "webhooks": [{"clientConfig": {"service": {"name": "s", "namespace": "n", "path": "/validate"}}}],
            "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "Cg==", "service": {"path": "/convert"}}}}},
            "other": {"clientConfig": {"url": "https://kept"}},
        });
        point_webhooks_at(&mut object, "127.0.0.1", 9443, "pem");
        assert_eq!(
            object["webhooks"][0]["clientConfig"],
            json!({"url": "https://127.0.0.1:9443/validate", "caBundle": "cGVt"})
        );
        assert_eq!(
            object["spec"]["conversion"]["webhook"]["clientConfig"],
            json!({"url": "https://127.0.0.1:9443/convert", "caBundle": "cGVt"})
        );
        assert_eq!(object["other"]["clientConfig"], json!({"url": "https://kept"}));
    }
}
