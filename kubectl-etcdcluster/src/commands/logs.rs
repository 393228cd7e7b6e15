//! `logs`: the manager's log lines about an EtcdCluster, and how to reach the consoles of its machines.

use super::print;
use crate::connection::{Connection, Options};
use crate::gather::{Gatherer, LOG_LINES};
use crate::lines::{consoles, of_cluster};
use crate::reader::Reader;
use anyhow::Result;
use std::process::ExitCode;

/// Arguments of `logs`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the EtcdCluster
    pub name: String,
    /// Lines of each manager's log that are looked through, the last ones
    #[arg(long, value_name = "LINES", default_value_t = LOG_LINES, value_parser = clap::value_parser!(i64).range(1..))]
    pub tail: i64,
}

/// Prints the lines.
///
/// # Errors
/// When the EtcdCluster cannot be read. If a log cannot be read, the output names it.
pub async fn run(arguments: Arguments, options: &Options) -> Result<ExitCode> {
    let Connection { client, namespace } = options.connect().await?;
    let snapshot = Reader::new(client.clone()).await?.one(&namespace, &arguments.name).await?;
    let mut notes = Vec::new();
    let gatherer = Gatherer::new(client, &namespace);
    let pods = gatherer.manager_pods().await.unwrap_or_else(|why| {
        notes.push(format!("Not read: the manager's Pods: {why}"));
        Vec::new()
    });
    if pods.is_empty() && notes.is_empty() {
        notes
            .push("No Pod of the manager is found: if it runs elsewhere, look at its standard error there.".to_owned());
    }
    for pod in &pods {
        match gatherer.log(pod, arguments.tail, false).await {
            Ok(text) => print(&of_cluster(&text, &snapshot))?,
            Err(why) => notes.push(format!("Not read: {why}")),
        }
    }
    notes.extend(consoles(&snapshot));
    // Only lines of logs go to standard output.
    notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(ExitCode::SUCCESS)
}
