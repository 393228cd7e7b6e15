//! `doctor`: what may be wrong, before and after a manifest is applied.

mod installation;
mod subject;

use super::print;
use crate::connection::{Connection, Options};
use crate::dial::{MemberMetrics, ask_metrics, dial};
use crate::doctor::{Subject, is_faulty, lines, of_installation, of_subject};
use crate::edit::{documents, is_etcd_cluster};
use crate::facts::Read;
use crate::gather::Gatherer;
use crate::reader::Reader;
use anyhow::{Context, Result, bail};
use controller_support::error::answer;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use subject::Sought;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a name and a file it looks at the installation alone. Nothing is changed. The exit status is 1 if there is a fault."
)]
pub struct Arguments {
    /// Name of the EtcdCluster
    #[arg(conflicts_with = "filename")]
    pub name: Option<String>,
    /// A manifest to look at before it is applied; - for the standard input
    #[arg(short, long, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    /// Ask the ports of the members, 2379 and 2380, from this computer: whether they are open, and until when the
    /// certificates are valid that they show; with the client certificate for Prometheus, where there is one, also what
    /// their metrics tell of their clocks and disks
    #[arg(long, requires = "name", conflicts_with = "filename")]
    pub dial: bool,
}

/// Runs the checks, and prints their findings.
///
/// # Errors
/// When the file or the EtcdCluster does not exist, or the API server does not answer at all.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let file = arguments.filename.as_deref().map(super::read).transpose()?;
    let file = file.as_deref().map(documents).transpose()?;
    let Connection { client, namespace } = options.connect().await?;
    let sought = match (&arguments.name, file) {
        (Some(name), _) => vec![existing(&client, &namespace, name).await?],
        (None, Some(file)) => of_file(&client, &namespace, file).await?,
        (None, None) => Vec::new(),
    };
    let first = sought.first();
    let gatherer = Gatherer::new(client.clone(), first.map_or(&namespace, |sought| &sought.namespace));
    let (mut is_ill, mut printed) = (false, Vec::new());
    let mut subjects = Vec::new();
    for sought in sought {
        let mut subject = sought.read(&client).await;
        if let Some(live) = subject.live.as_ref().filter(|_| arguments.dial) {
            let metrics = metrics(&client, &subject, live).await;
            subject.dialed = Some(dial(live).await);
            subject.metrics = Some(metrics);
        }
        subjects.push(subject);
    }
    let templates = subjects.iter().filter_map(|subject| subject.template_crd.clone().ok().flatten()).collect();
    let installation = installation::read(&client, &gatherer, templates).await;
    let found = of_installation(&installation);
    is_ill |= is_faulty(&found);
    printed.extend(lines("Installation", &found));
    for subject in &subjects {
        let found = of_subject(subject, &installation);
        is_ill |= is_faulty(&found);
        printed.extend(lines(&format!("EtcdCluster {}/{}", subject.namespace, subject.name()), &found));
    }
    print(&printed)?;
    Ok(if is_ill { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The metrics that members return to the client certificate for Prometheus.
async fn metrics(client: &Client, subject: &Subject, live: &Value) -> Read<Vec<MemberMetrics>> {
    if live.pointer("/spec/metricsClientSecret") != Some(&Value::Bool(true)) {
        return Err("spec.metricsClientSecret is not true".to_owned());
    }
    let name = api::names::metrics_client_secret(subject.cluster_name().ok_or("no Cluster names the EtcdCluster")?);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &subject.namespace);
    let secret = secrets.get(&name).await.map_err(|error| format!("Secret {name}: {}", answer(&error)))?;
    ask_metrics(live, &secret).await.map_err(|why| format!("Secret {name}: {why}"))
}

/// An EtcdCluster that exists.
async fn existing(client: &Client, namespace: &str, name: &str) -> Result<Sought> {
    let etcd = Reader::new(client.clone()).await?.etcd(namespace, name).await?;
    let etcd = crate::gather::typed(&etcd);
    Ok(Sought { namespace: namespace.to_owned(), live: Some(etcd.clone()), etcd, file: Vec::new() })
}

/// The EtcdClusters in a file, each with the existing object.
async fn of_file(client: &Client, namespace: &str, file: Vec<Value>) -> Result<Vec<Sought>> {
    let mut found = Vec::new();
    for etcd in file.iter().filter(|object| is_etcd_cluster(object)) {
        let name = etcd["metadata"]["name"].as_str().context("an EtcdCluster has no metadata.name")?;
        let namespace = etcd["metadata"]["namespace"].as_str().unwrap_or(namespace).to_owned();
        // Before the provider is installed, none exists.
        let mut gatherer = Gatherer::new(client.clone(), &namespace);
        let live = gatherer.object(api::names::ETCD_CLUSTER_GROUP, "EtcdCluster", name).await.ok().flatten();
        found.push(Sought { namespace, etcd: etcd.clone(), live, file: file.clone() });
    }
    if found.is_empty() {
        bail!("the file has no EtcdCluster of {}", api::names::ETCD_CLUSTER_GROUP);
    }
    Ok(found)
}
