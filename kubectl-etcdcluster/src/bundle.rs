//! The files of a bug report: all that was read, without secrets. Pure.

mod archive;
mod guide;

pub use archive::{archive, name};

use crate::facts::{Crd, Manager};
use crate::redact;
use crate::secrets::SecretSummary;
use crate::snapshot::Snapshot;
use crate::text::Times;
use crate::why::Event;
use crate::{tree, why};
use serde::Serialize;
use serde_json::{Value, to_value};
use std::collections::BTreeSet;

/// What was read for a report.
#[derive(Clone, Debug)]
pub struct Material {
    /// The EtcdCluster with its Machines.
    pub snapshot: Snapshot,
    /// The objects that the report shows completely, except for secrets.
    pub objects: Vec<Value>,
    /// Secrets without their data.
    pub secrets: Vec<SecretSummary>,
    /// Events of the objects.
    pub events: Vec<Event>,
    /// Logs of managers.
    pub logs: Vec<Log>,
    /// The versions of all that runs.
    pub versions: Versions,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}

/// The versions of all that runs.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// This program.
    pub plugin: String,
    /// The management cluster's API server.
    pub kubernetes: String,
    /// Managers of this provider.
    pub managers: Vec<Manager>,
    /// Managers of Cluster API.
    pub cluster_api: Vec<Manager>,
    /// CRDs.
    pub crds: Vec<Crd>,
}

/// The log of a container.
#[derive(Clone, Debug)]
pub struct Log {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Whether it is the log of the container before its last restart.
    pub previous: bool,
    /// Its lines.
    pub text: String,
}

/// A file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path inside the report, with slashes.
    pub path: String,
    /// Content.
    pub text: String,
}

/// The files, by path.
#[must_use]
pub fn files(material: &Material) -> Vec<File> {
    let mut files = vec![
        file("README.md", guide::guide(material)),
        file("status.txt", summary(material)),
        file("versions.yaml", yaml(&material.versions)),
        // It never contained a secret, and redaction by the names of values would suggest that it did.
        file("secrets.yaml", plain(&material.secrets)),
    ];
    let mut taken = BTreeSet::new();
    for object in &material.objects {
        let path = path(object);
        if taken.insert(path.clone()) {
            files.push(file(&path, yaml(object)));
        }
    }
    files.extend(material.logs.iter().map(|log| {
        let previous = if log.previous { ".previous" } else { "" };
        file(&format!("manager/{}.{}{previous}.log", log.namespace, log.pod), redact::lines(&log.text))
    }));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The output of the commands `status` and `why`, with all events.
fn summary(material: &Material) -> String {
    let snapshot = &material.snapshot;
    let report = crate::report::Report::new(snapshot);
    let mut lines = tree::lines(&report, Times::Points);
    lines.push(String::new());
    lines.extend(why::lines(snapshot, &[], Times::Points));
    lines.extend([String::new(), "Events".to_owned()]);
    lines.extend(why::listed(&material.events, Times::Points).into_iter().map(|line| format!("  {line}")));
    redact::lines(&lines.join("\n"))
}

fn path(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let namespace = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("{namespace}."),
    };
    format!("objects/{}/{namespace}{}.yaml", text("/kind"), text("/metadata/name"))
}

fn file(path: &str, text: String) -> File {
    File { path: path.to_owned(), text }
}

fn yaml(content: &impl Serialize) -> String {
    let mut value = to_value(content).unwrap_or_default();
    redact::object(&mut value);
    plain(&value)
}

fn plain(content: &impl Serialize) -> String {
    serde_yaml::to_string(content).unwrap_or_else(|error| format!("# {error}\n"))
}

#[cfg(test)]
mod tests;
