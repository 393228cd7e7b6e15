//! Requests like kubectl's: strict about unknown fields, in the version that the document names.

use anyhow::{Context, Result, bail};
use e2e::apply::api_for;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Our kinds and those of the local infrastructure, with group and plural.
const KINDS: [(&str, &str, &str); 6] = [
    ("EtcdCluster", "etcdcluster.cluster.x-k8s.io", "etcdclusters"),
    ("EtcdadmConfig", "bootstrap.cluster.x-k8s.io", "etcdadmconfigs"),
    ("EtcdadmConfigTemplate", "bootstrap.cluster.x-k8s.io", "etcdadmconfigtemplates"),
    ("LocalCluster", "infrastructure.cluster.x-k8s.io", "localclusters"),
    ("LocalMachine", "infrastructure.cluster.x-k8s.io", "localmachines"),
    ("LocalMachineTemplate", "infrastructure.cluster.x-k8s.io", "localmachinetemplates"),
];

/// kubectl's default for `--validate`.
const STRICT: &str = "fieldValidation=Strict";

/// The API server's answer.
pub(crate) type Answer = Result<Value, String>;

/// The same, with the whole status of a refusal.
pub(crate) type Verdict = Result<Value, Box<Status>>;

/// The API server.
pub(crate) struct Server {
    pub(crate) client: Client,
    /// How programs reach it.
    pub(crate) kubeconfig: PathBuf,
    /// kubectl of its version.
    pub(crate) kubectl: PathBuf,
}

impl Server {
    pub(crate) fn new(client: Client, kubeconfig: &Path, kubectl: &Path) -> Self {
        Self { client, kubeconfig: kubeconfig.to_owned(), kubectl: kubectl.to_owned() }
    }

    /// The kubeconfig of the owner of this token, in a file of this name.
    pub(crate) fn kubeconfig_with(&self, token: &str, name: &str) -> Result<PathBuf> {
        let mut kubeconfig: Value = serde_json::from_slice(&fs::read(&self.kubeconfig)?)?;
        kubeconfig["users"][0]["user"] = json!({"token": token});
        let path = self.kubeconfig.with_file_name(name);
        fs::write(&path, kubeconfig.to_string()).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// Creates an object in namespace default, or returns why the server refuses it.
    pub(crate) async fn create(&self, object: &Value) -> Result<Answer> {
        self.send("POST", &format!("{}?{STRICT}", collection(object)?), "application/json", object).await
    }

    /// The answer to creating it, as a dry run.
    pub(crate) async fn try_create(&self, object: &Value) -> Result<Answer> {
        Ok(self.judge(object).await?.map_err(|status| status.message))
    }

    /// The same, with the whole status of a refusal.
    pub(crate) async fn judge(&self, object: &Value) -> Result<Verdict> {
        self.ask("POST", &format!("{}?dryRun=All&{STRICT}", collection(object)?), "application/json", object).await
    }

    /// Server-side apply, as `kubectl apply --server-side`.
    pub(crate) async fn apply(&self, object: &Value) -> Result<Answer> {
        let uri = format!("{}?fieldManager=e2e&force=true&{STRICT}", path(object)?);
        self.send("PATCH", &uri, "application/apply-patch+yaml", object).await
    }

    /// Merge patch of an object, or of one of its subresources (`/status`, `/scale`).
    pub(crate) async fn patch(&self, object: &Value, subresource: &str, patch: &Value) -> Result<Answer> {
        let uri = format!("{}{subresource}?{STRICT}", path(object)?);
        self.send("PATCH", &uri, "application/merge-patch+json", patch).await
    }

    /// Reads an object, or one of its subresources.
    pub(crate) async fn get(&self, object: &Value, subresource: &str) -> Result<Value> {
        let uri = format!("{}{subresource}", path(object)?);
        let request = Request::get(uri).body(Vec::new())?;
        Ok(self.client.request(request).await?)
    }

    /// What `kubectl get` prints of one object: values by the name of their column, including the wide ones.
    pub(crate) async fn columns(&self, object: &Value) -> Result<Vec<(String, Value)>> {
        let request = Request::get(path(object)?)
            .header(ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())?;
        let table: Value = self.client.request(request).await?;
        let columns = table["columnDefinitions"].as_array().context("no columns")?;
        let cells = table.pointer("/rows/0/cells").and_then(Value::as_array).context("no row")?;
        let names = columns.iter().map(|column| column["name"].as_str().unwrap_or_default().to_owned());
        Ok(names.zip(cells.iter().cloned()).collect())
    }

    async fn send(&self, method: &str, uri: &str, content_type: &str, body: &Value) -> Result<Answer> {
        Ok(self.ask(method, uri, content_type, body).await?.map_err(|status| status.message))
    }

    async fn ask(&self, method: &str, uri: &str, content_type: &str, body: &Value) -> Result<Verdict> {
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(CONTENT_TYPE, content_type)
            .body(serde_json::to_vec(body)?)?;
        match self.client.request(request).await {
            Ok(answer) => Ok(Ok(answer)),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(Err(status)),
            Err(error) => Err(error).with_context(|| format!("{method} {uri}")),
        }
    }
}

/// Creates a document of any kind as `kubectl apply --dry-run=server` does, or returns why the server refuses it.
pub(crate) async fn try_create(client: &Client, document: &Value, text: &str) -> Result<Result<(), String>> {
    let (api, _) = api_for(client, document).await?;
    let request = Request::post(format!("{}?dryRun=All&{STRICT}", api.resource_url()))
        .header(CONTENT_TYPE, "application/yaml")
        .body(text.as_bytes().to_vec())?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(Err(status.message)),
        Err(error) => Err(error.into()),
    }
}

/// An object of one of our kinds, in v1beta1.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let group = KINDS.iter().find(|known| known.0 == kind).map_or("", |known| known.1);
    let version = if kind.starts_with("Local") { "v1alpha1" } else { "v1beta1" };
    json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// `document` with the values of `change`, as in a merge patch: null removes a field.
pub(crate) fn merged(document: &Value, change: &Value) -> Value {
    let (Value::Object(fields), Value::Object(changes)) = (document, change) else { return change.clone() };
    let mut fields = fields.clone();
    for (name, value) in changes {
        if value.is_null() {
            fields.remove(name);
        } else {
            let before = fields.remove(name).unwrap_or(Value::Null);
            fields.insert(name.clone(), merged(&before, value));
        }
    }
    Value::Object(fields)
}

fn collection(object: &Value) -> Result<String> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
    match KINDS.iter().find(|known| known.0 == text("kind")) {
        Some((_, _, plural)) => Ok(format!("/apis/{}/namespaces/{namespace}/{plural}", text("apiVersion"))),
        None => bail!("these tests do not know kind {}", text("kind")),
    }
}

fn path(object: &Value) -> Result<String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
    Ok(format!("{}/{name}", collection(object)?))
}
