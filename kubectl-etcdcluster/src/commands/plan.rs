//! `plan`: what an edited manifest would do, by a dry run of the API server and a forecast.

use super::print;
use crate::connection::Options;
use crate::edit::{changes, client_side_patch, etcd_clusters};
use crate::forecast::{assumed_template, forecast};
use crate::gather::Gatherer;
use crate::plan::Edit;
use crate::reader::{CONFIGS, Reader, explain};
use crate::text::count;
use anyhow::{Context, Result, bail};
use api::EtcdCluster;
use etcd_cluster_controller::observation::Template;
use kube::api::{Api, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::{GroupVersionKind, Status};
use kube::discovery::ApiResource;
use serde_json::{Value, to_value};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Nothing is changed. The exit status is 1 if the edit would be refused.")]
pub struct Arguments {
    /// The edited manifest; - for the standard input. Objects of other kinds in it are passed over
    #[arg(short, long, value_name = "FILE")]
    pub filename: PathBuf,
    /// Field manager of the dry run with server-side apply. Objects that were applied without --server-side are patched as
    /// kubectl apply does it
    #[arg(long, value_name = "NAME", default_value = "kubectl")]
    pub field_manager: String,
}

/// Prints what the manifest would do.
///
/// # Errors
/// When the file does not exist or has no EtcdCluster, or the API server does not answer.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let path = arguments.filename.display().to_string();
    let text = super::read(&arguments.filename)?;
    let manifests = etcd_clusters(&text).with_context(|| format!("read {path}"))?;
    let connection = options.connect().await?;
    let reader = Reader::new(connection.client).await?;
    let mut refused = false;
    for manifest in &manifests {
        let name =
            manifest["metadata"]["name"].as_str().with_context(|| format!("{path}: metadata.name is missing"))?;
        let own = manifest["metadata"]["namespace"].as_str();
        if let (Some(own), Some(asked)) = (own, &options.namespace)
            && own != asked
        {
            bail!("{path}: EtcdCluster {name} is of namespace {own}, and -n says {asked}");
        }
        let namespace = own.unwrap_or(&connection.namespace);
        let candidate = Candidate { reader: &reader, namespace, name, manifest, manager: &arguments.field_manager };
        let outcome = candidate.tell().await?;
        refused |= outcome.refused;
        print(&outcome.lines)?;
    }
    Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

struct Outcome {
    lines: Vec<String>,
    refused: bool,
}

/// One edited EtcdCluster.
struct Candidate<'a> {
    reader: &'a Reader,
    namespace: &'a str,
    name: &'a str,
    manifest: &'a Value,
    manager: &'a str,
}

impl Candidate<'_> {
    async fn tell(&self) -> Result<Outcome> {
        let api = self.api()?;
        let doing = || format!("read EtcdCluster {}/{}", self.namespace, self.name);
        let live = api.get_opt(self.name).await.map_err(explain).with_context(doing)?;
        let live = live.map(to_value).transpose()?;
        let edited = match self.dry_run(&api, live.as_ref()).await {
            Err(kube::Error::Api(status)) if is_refusal(&status) => return Ok(self.refused(&status.message)),
            other => to_value(other.map_err(explain).context("dry run")?)?,
        };
        let Some(live) = live else { return Ok(self.would_be_created(&edited)) };
        let changes = changes(&live, &edited);
        let edited: EtcdCluster = serde_json::from_value(edited).context("read what the dry run has answered")?;
        let snapshot = self.reader.one(self.namespace, self.name).await?;
        if let Some(unread) = snapshot.unread.iter().find(|what| what.starts_with(CONFIGS)) {
            bail!("without {unread} it cannot be told which Machines match the edited spec");
        }
        let (template, note) = self.template(&edited).await;
        let forecast = forecast(&snapshot, edited.clone(), template);
        let edit = Edit { live: &snapshot, edited: &edited, changes: &changes, forecast: &forecast };
        let mut lines = edit.lines();
        lines.extend(note.into_iter().chain(snapshot.unread.iter().map(|what| format!("Not read: {what}"))));
        Ok(Outcome { lines, refused: edit.is_refused() })
    }

    /// EtcdClusters in the version of the manifest.
    fn api(&self) -> Result<Api<DynamicObject>> {
        let version = self.manifest["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        let (group, version) = version.context("apiVersion is missing")?;
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "EtcdCluster"));
        Ok(Api::namespaced_with(self.reader.client.clone(), self.namespace, &kind))
    }

    async fn dry_run(&self, api: &Api<DynamicObject>, live: Option<&Value>) -> kube::Result<DynamicObject> {
        let mut parameters = PatchParams::apply(self.manager).dry_run();
        parameters.field_validation = Some(ValidationDirective::Strict);
        match live.and_then(|live| client_side_patch(live, self.manifest)) {
            Some(patch) => api.patch(self.name, &parameters, &Patch::Merge(patch)).await,
            None => api.patch(self.name, &parameters.force(), &Patch::Apply(self.manifest)).await,
        }
    }

    fn would_be_created(&self, created: &Value) -> Outcome {
        let replicas = created["spec"]["replicas"].as_u64().and_then(|replicas| usize::try_from(replicas).ok());
        let lines = vec![
            format!("EtcdCluster {}/{} would be created.", self.namespace, self.name),
            format!(
                "{} would be made, and their members joined. The control plane is told once, when all are there.",
                count(replicas.unwrap_or_default(), "Machine")
            ),
        ];
        Outcome { lines, refused: false }
    }

    fn refused(&self, message: &str) -> Outcome {
        let title = format!("EtcdCluster {}/{}: the API server refuses it:", self.namespace, self.name);
        // The whole object precedes this text.
        let message = message.rfind(UNKNOWN_FIELDS).map_or(message, |start| &message[start..]);
        Outcome { lines: vec![title, format!("  {message}")], refused: true }
    }

    /// The template of the edited spec, and a note about it, if there is one to make.
    async fn template(&self, edited: &EtcdCluster) -> (Template, Option<String>) {
        let wanted = &edited.spec.infrastructure_template;
        let what = format!("{} {}", wanted.kind, wanted.name);
        let mut assumed = assumed_template(edited);
        match self.find_template(wanted.group(), &wanted.kind, &wanted.name).await {
            Ok(Some(found)) => {
                if let Template::Found { template, .. } = &mut assumed {
                    *template = Arc::new(found);
                }
                (assumed, None)
            }
            Ok(None) => {
                let missing = format!("{what} does not exist in namespace {}", self.namespace);
                (Template::NotFound(format!("spec.infrastructureTemplate: {missing}")), None)
            }
            Err(error) => (assumed, Some(format!("Not read: {what} ({error:#}). It is taken to be there."))),
        }
    }

    async fn find_template(&self, group: &str, kind: &str, name: &str) -> Result<Option<DynamicObject>> {
        let mut gatherer = Gatherer::new(self.reader.client.clone(), self.namespace);
        match gatherer.find(group, kind, name).await {
            Err(kube::Error::Api(status)) => bail!("{}", status.message),
            found => Ok(found?.map(|(template, _)| template)),
        }
    }
}

/// How the API server begins its text about unknown fields.
const UNKNOWN_FIELDS: &str = "strict decoding error: ";

/// Whether an answer is about the manifest: a schema or rule, a policy or webhook, a conflict. To a server-side apply
/// with an unknown field, the API server answers with an internal error.
fn is_refusal(status: &Status) -> bool {
    matches!(status.code, 400 | 403 | 409 | 422) || status.message.contains("field not declared in schema")
}
