//! `status`: an EtcdCluster as a tree, or all EtcdClusters of a namespace in short form.

use super::print;
use crate::connection::Options;
use crate::reader::Reader;
use crate::report::Report;
use crate::text::Times;
use crate::tree;
use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json, to_value};
use std::process::ExitCode;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the EtcdCluster. Without it, all of the namespace are shown in short
    pub name: Option<String>,
    /// Show those of all namespaces
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,
    /// How to print it. The structure of json and yaml does not change but for fields that are added
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// How a status is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For programs
    Json,
    /// For programs
    Yaml,
}

/// Prints the status.
///
/// # Errors
/// When an EtcdCluster cannot be read.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let connection = options.connect().await?;
    let reader = Reader::new(connection.client).await?;
    let namespace = Some(connection.namespace.as_str()).filter(|_| !arguments.all_namespaces);
    let snapshots = match &arguments.name {
        Some(name) => vec![reader.one(&connection.namespace, name).await?],
        None => reader.all(namespace).await?,
    };
    let times = Times::Ages(snapshots.first().map_or_else(crate::reader::now, |snapshot| snapshot.now));
    let reports: Vec<Report> = snapshots.iter().map(Report::new).collect();
    let is_one = arguments.name.is_some();
    let lines = match arguments.output {
        Format::Table if is_one => reports.iter().flat_map(|report| tree::lines(report, times)).collect(),
        Format::Table if reports.is_empty() => {
            vec![match namespace {
                Some(namespace) => format!("There is no EtcdCluster in namespace {namespace}."),
                None => "There is no EtcdCluster.".to_owned(),
            }]
        }
        Format::Table => reports.iter().flat_map(|report| tree::block(report, times)).collect(),
        Format::Json => vec![serde_json::to_string_pretty(&document(&reports, is_one)?)?],
        Format::Yaml => vec![serde_yaml::to_string(&document(&reports, is_one)?)?.trim_end().to_owned()],
    };
    print(&lines)?;
    Ok(ExitCode::SUCCESS)
}

/// A single report as it is, several reports as a list.
fn document(reports: &[Report], is_one: bool) -> serde_json::Result<Value> {
    match reports {
        [report] if is_one => to_value(report),
        reports => Ok(json!({"items": to_value(reports)?})),
    }
}
